"""Numbers with the word that they count."""

__all__ = ["counted", "dollars"]


def counted(number: int, word: str) -> str:
    """Return "1 turn" or "2 turns"."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def dollars(known: str, *, is_partly_unknown: bool) -> str:
    """Return "$1.20", or "$1.20 + unknown" where the price of some calls is not known: they are not in the number."""
    return f"${known} + unknown" if is_partly_unknown else f"${known}"
