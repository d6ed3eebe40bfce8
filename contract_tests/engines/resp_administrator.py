"""What a Redis or Valkey was told of the cell."""

from cell.engines.resp import administrator
from contract_tests.engines.conftest import Subject


def secret(subject: Subject) -> str:
    return administrator.login(subject.host, subject.site).password
