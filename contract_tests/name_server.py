"""A DNS server on loopback, for tests of whoever asks one."""

import contextlib
import socket
import threading

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

MESSAGE_MAX = 4096
FOLLOWED = {dns.rdatatype.CNAME, dns.rdatatype.A, dns.rdatatype.AAAA}
CHAIN_MAX = 40
"""Aliases told in one answer, more than any resolver follows."""
NOBODY = "127.0.0.1:9"
"""Where no server answers."""


class NameServer:
    """Answers CNAME questions from `records`; what is not in `hosts` or `records` is unknown.

    Asked for an address it follows `records`, and has the one in `addresses` where they lead to.
    Asked for TXT it follows them too, all the way, to what `texts` has there.
    """

    def __init__(self) -> None:
        self.records: dict[str, str] = {}
        self.hosts: set[str] = set()
        self.addresses: dict[str, str] = {}
        self.texts: dict[str, list[str]] = {}
        # While set, every question is answered with a server failure.
        self.fails = False
        # Names that nothing is answered to, as if their own servers did not answer.
        self.silent: set[str] = set()
        self.questions: list[str] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def start(self) -> None:
        """Nobody answers until then."""
        if not self._thread.is_alive():
            self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            # Closed under its hands, the socket would fail it in the midst of an answer.
            self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                wire, peer = self._socket.recvfrom(MESSAGE_MAX)
            except OSError:
                return
            if not wire:
                return
            # Whoever asked may have gone, and a stranger on this port may say anything: neither
            # ends the thread, whose exception would fail whatever test runs at that moment.
            with contextlib.suppress(OSError, dns.exception.DNSException):
                answer = self._answer(dns.message.from_wire(wire))
                if self.questions[-1] not in self.silent:
                    self._socket.sendto(answer.to_wire(), peer)

    def _answer(self, asked: dns.message.Message) -> dns.message.Message:
        answer = dns.message.make_response(asked)
        answer.flags |= dns.flags.AA
        question = asked.question[0]
        name = str(question.name).rstrip(".").lower()
        self.questions.append(name)
        if self.fails:
            answer.set_rcode(dns.rcode.SERVFAIL)
        elif question.rdtype == dns.rdatatype.TXT:
            self._answer_texts(answer, name)
        elif name in self.records and question.rdtype in FOLLOWED:
            target = f"{self.records[name]}."
            answer.answer.append(dns.rrset.from_text(question.name, 60, "IN", "CNAME", target))
            address = self.addresses.get(self.records[name])
            if question.rdtype == dns.rdatatype.A and address is not None:
                answer.answer.append(dns.rrset.from_text(target, 60, "IN", "A", address))
        elif name not in self.hosts and name not in self.records:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        return answer

    def _answer_texts(self, answer: dns.message.Message, name: str) -> None:
        is_known = name in self.texts or name in self.records or name in self.hosts
        while name in self.records and len(answer.answer) < CHAIN_MAX:
            target = self.records[name]
            alias = dns.rrset.from_text(f"{name}.", 60, "IN", "CNAME", f"{target}.")
            answer.answer.append(alias)
            name = target
        for value in self.texts.get(name, ()):
            parts = [value[at : at + 255] for at in range(0, len(value), 255)] or [""]
            quoted = " ".join(f'"{part}"' for part in parts)
            answer.answer.append(dns.rrset.from_text(f"{name}.", 60, "IN", "TXT", quoted))
        if not is_known:
            answer.set_rcode(dns.rcode.NXDOMAIN)
