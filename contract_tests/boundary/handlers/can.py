"""One operation for each permission there is: reaching it is being allowed."""

from typing import Any

from control.boundary import Call


def _answer(call: Call) -> dict[str, Any]:
    return {"allowed": True, "role": call.caller.role if call.caller else None}


def __getattr__(name: str) -> Any:
    if name.startswith("do_"):
        return _answer
    raise AttributeError(name)
