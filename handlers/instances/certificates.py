"""CA chains of cells, as one PEM file."""

from control.boundary import Call
from specserver import Reply, Unavailable
from storage.catalogue import cells

MEDIA_TYPE = "application/x-pem-file"


def of_cells(call: Call, cell_ids: set[str]) -> Reply:
    """Each certificate once, intermediates before roots."""
    found = [cell for cell in cells.every(call.db) if cell.id in cell_ids]
    pems = [pem for cell in found for pem in (cell.ca_chain_pem, cell.ca_root_pem) if pem]
    if not pems:
        raise Unavailable(
            "no cell has reported its certificates yet; try again", headers={"Retry-After": "2"}
        )
    blocks = dict.fromkeys(block for pem in pems for block in _blocks(pem))
    return Reply.text("".join(blocks), MEDIA_TYPE)


def _blocks(pem: str) -> list[str]:
    end = "-----END CERTIFICATE-----"
    return [part.strip() + f"\n{end}\n" for part in pem.split(end) if part.strip()]
