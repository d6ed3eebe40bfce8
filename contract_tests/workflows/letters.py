"""Letters that were sent, kept in this process."""

from control.mail import Letter


class Letters:
    """A mailer. `sent` has each letter once, by the key that it was sent with."""

    def __init__(self) -> None:
        self.sent: dict[str, Letter] = {}

    def send(self, letter: Letter, key: str) -> None:
        self.sent[key] = letter

    @property
    def last(self) -> Letter:
        return list(self.sent.values())[-1]
