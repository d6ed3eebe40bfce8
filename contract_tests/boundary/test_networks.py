"""Networks full of addresses are limited as a few addresses are."""

from contract_tests.boundary.small_api import MakeSmallApi
from control.settings import RateLimits


def test_a_network_full_of_addresses_is_limited_as_a_few_of_them(make_api: MakeSmallApi) -> None:
    rates = RateLimits(refused_per_minute=20, network_times=2)
    api = make_api(rate_limits=True, rates=rates)

    def attempts(peers: list[str]) -> list[int]:
        bodies = ({"email": f"{n}@example.org", "password": "x"} for n, _ in enumerate(peers))
        answers = [api.post("/v1/sessions", json=next(bodies), peer=peer) for peer in peers]
        return [answer.status_code for answer in answers]

    for crowd, other in (("2001:db8:7:{0}::1", "2001:db8:8::1"), ("192.0.2.{0}", "192.0.3.1")):
        codes = attempts([crowd.format(number) for number in range(22)])
        assert codes == [401] * 20 + [429] * 2
        assert attempts([other]) == [401]
    refused = [api.get("/v1/me", "nonsense", peer=f"2001:db8:9:{n}::1") for n in range(41)]
    assert [answer.status_code for answer in refused] == [401] * 40 + [429]
    assert api.get("/v1/me", "nonsense", peer="2001:db8:a::1").status_code == 401


def test_pages_are_limited_by_network(make_api: MakeSmallApi) -> None:
    rates = RateLimits(pages_per_minute=4, network_times=3)
    api = make_api(rate_limits=True, rates=rates)
    for crowd, other in (("2001:db8:7:{0}::1", "2001:db8:8::1"), ("192.0.2.{0}", "192.0.3.1")):
        codes = [api.get("/docs", peer=crowd.format(n)).status_code for n in range(13)]
        assert codes == [200] * 12 + [429]
        assert api.get("/docs", peer=other).status_code == 200
