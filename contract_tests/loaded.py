"""Documents that processes of tests are forked with: to read them is a third of a cell's start."""

from types import ModuleType

from specserver.document import Document


def load_document(module: ModuleType) -> None:
    """Instead of the path of its document, the module has what is read there."""
    module.DOCUMENT = Document.load(module.DOCUMENT, checked=True)  # type: ignore[attr-defined]
