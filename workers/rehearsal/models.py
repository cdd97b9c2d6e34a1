"""Which models the rehearsal knows and what each takes: limits, thinking forms, effort levels.

The names and limits are those published in autumn 2026; the `rehearsal-…` ones are invented, for the two
corners that the published ones do not have: no thinking at all, and thinking that cannot be turned off.
"""

from dataclasses import dataclass, replace
from typing import Any

__all__ = ["BUILT_IN_MODELS", "Model", "model_info"]

_ALL_EFFORTS = ("low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, slots=True)
class Model:
    """One model. Limits in tokens; `sampling`: whether `temperature` and the like are taken."""

    id: str
    display_name: str
    line: str | None
    max_input_tokens: int
    max_tokens: int
    thinking: tuple[str, ...]
    efforts: tuple[str, ...]
    sampling: bool = False
    prefill: bool = False
    thinks_unasked: bool = True
    display: str = "omitted"

    def renamed(
        self,
        name: str,
        *,
        max_input_tokens: int | None = None,
        max_tokens: int | None = None,
        thinking: tuple[str, ...] | None = None,
        efforts: tuple[str, ...] | None = None,
    ) -> "Model":
        """Return the same model under another name, with other limits and capabilities where given."""
        return replace(
            self,
            id=name,
            display_name=name,
            max_input_tokens=max_input_tokens or self.max_input_tokens,
            max_tokens=max_tokens or self.max_tokens,
            thinking=self.thinking if thinking is None else thinking,
            efforts=self.efforts if efforts is None else efforts,
        )


def _newer(name: str, display_name: str, line: str | None) -> Model:
    return Model(
        id=name,
        display_name=display_name,
        line=line,
        max_input_tokens=1_000_000,
        max_tokens=128_000,
        thinking=("adaptive", "between_tools", "disabled"),
        efforts=_ALL_EFFORTS,
    )


def _older(name: str, display_name: str, line: str | None, thinking: tuple[str, ...]) -> Model:
    return Model(
        id=name,
        display_name=display_name,
        line=line,
        max_input_tokens=200_000,
        max_tokens=64_000,
        thinking=thinking,
        efforts=(),
        sampling=True,
        prefill=True,
        thinks_unasked=False,
        display="summarized",
    )


BUILT_IN_MODELS: dict[str, Model] = {
    model.id: model
    for model in (
        _newer("claude-sonnet-5-5", "Claude Sonnet 5.5", "sonnet"),
        _newer("claude-opus-5-5", "Claude Opus 5.5", "opus"),
        _newer("claude-haiku-5-5", "Claude Haiku 5.5", "haiku"),
        _older("claude-haiku-4-5", "Claude Haiku 4.5", "haiku", ("enabled", "disabled")),
        _older("rehearsal-plain", "Rehearsal, no thinking", None, ("disabled",)),
        replace(
            _newer("rehearsal-always", "Rehearsal, thinking always on", None),
            thinking=("adaptive",),
        ),
    )
}


def _supported(answer: bool) -> dict[str, bool]:
    return {"supported": answer}


def _thinking(model: Model) -> dict[str, Any]:
    forms = ("adaptive", "between_tools", "disabled", "enabled")
    return {
        "supported": any(form in model.thinking for form in ("adaptive", "enabled")),
        "types": {form: _supported(form in model.thinking) for form in forms},
    }


def _effort(model: Model) -> dict[str, Any]:
    levels = {level: _supported(level in model.efforts) for level in _ALL_EFFORTS}
    return {"supported": bool(model.efforts), **levels}


def model_info(model: Model) -> dict[str, Any]:
    """Return what `GET /v1/models/{id}` answers, in the shape of the SDK's `ModelInfo`."""
    no, yes = _supported(answer=False), _supported(answer=True)
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.display_name,
        "created_at": "2026-09-01T00:00:00Z",
        "lifecycle": "active",
        "line": model.line,
        "max_input_tokens": model.max_input_tokens,
        "max_tokens": model.max_tokens,
        "capabilities": {
            "batch": no,
            "citations": no,
            "code_execution": no,
            "context_management": {"supported": False},
            "effort": _effort(model),
            "image_input": yes,
            "pdf_input": no,
            "server_tools": {"supported": False, "code_execution": no, "web_search": no},
            "structured_outputs": no,
            "thinking": _thinking(model),
        },
    }
