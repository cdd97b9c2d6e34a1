"""Numbers with the word that they count."""

__all__ = ["counted"]


def counted(number: int, word: str) -> str:
    """Return "1 turn" or "2 turns"."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
