"""What shells are told when they complete: words and descriptions that none of them evaluates.

zsh evaluates what typer prints, bash puts a word on the line as it stands, and both leave it to
the program to quote. Names come from other people, so what would need quoting is left out.
"""

import re
from typing import Any, Final

from typer._click.shell_completion import (  # the registry typer itself asks; it has no other
    CompletionItem,
    ShellComplete,
    add_completion_class,
    get_completion_class,
)
from typer.completion import completion_init  # type: ignore[attr-defined]  # public, not re-exported by name

SHELLS: Final = ("bash", "zsh", "fish", "powershell", "pwsh")
# What stands for itself in every shell: a name, an id, `--option`, `instances:read`.
WORD: Final = re.compile(r"-{0,2}[A-Za-z0-9][A-Za-z0-9_.:-]*")
# In a description letters of every script are harmless, and a few marks.
UNDESCRIPTIVE: Final = re.compile("[^\\w .,/@%+=\N{RIGHT SINGLE QUOTATION MARK}-]+")
DESCRIPTION_MAX: Final = 120


def description(text: str) -> str:
    """Answer the text without what a shell, a terminal or rich's markup may understand."""
    said = text.replace("'", "\N{RIGHT SINGLE QUOTATION MARK}").replace("`", "")
    return " ".join(UNDESCRIPTIVE.sub(" ", said).split())[:DESCRIPTION_MAX]


def register() -> None:
    """Have typer complete for each shell with harmless words alone."""
    completion_init()
    for name in SHELLS:
        kind = get_completion_class(name)
        if kind is not None and not issubclass(kind, _Harmless):
            add_completion_class(type(kind.__name__, (_Harmless, kind), {}), name)


class _Harmless(ShellComplete):
    def get_completions(self, *args: Any) -> list[CompletionItem]:
        found = super().get_completions(*args)
        return [
            CompletionItem(one.value, one.type, description(one.help or "") or None)
            for one in found
            # Without a word the shell itself completes files, and quotes them.
            if one.type == "plain" and WORD.fullmatch(str(one.value))
        ]
