"""Orders of instances: what is wrong with one, all of it, and what one would cost."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypedDict

from control.policy import quotas
from control.policy.catalogue import ENGINES, Catalogue, version_order
from control.policy.plans import (
    PLACEMENTS,
    SECURE,
    SHARED,
    Plan,
    plans_with_placement,
    plans_with_size,
)
from control.policy.prices import PriceList
from control.policy.quotas import Usage
from control.policy.sizes import OTHER_SIZES, SIZES
from control.policy.violations import Violation, gigabytes, wrong


class Preview(TypedDict):
    """What `dry_run` answers. Quotas left are after the order; None is: no limit."""

    engine_version: str
    region: str
    storage_bytes: int
    cost_usd_cents_per_month: int
    quota_left: dict[str, int | None]


@dataclass(frozen=True)
class Order:
    """What is asked for. None: left out, so the service chooses."""

    engine: str
    size: str
    engine_version: str | None = None
    region: str | None = None
    placement: str = "shared"
    storage_bytes: int | None = None


@dataclass(frozen=True)
class Terms:
    """What the order is held against: the org's plan, what it uses, and what it has signed."""

    catalogue: Catalogue
    plan: Plan
    usage: Usage = field(default_factory=Usage)
    default_region: str | None = None
    baa_signed: bool = False
    is_offered: bool = True
    """Whether any cell has the placement asked for; where one has, `catalogue` is of these."""


def settle(order: Order, terms: Terms) -> Order:
    """The order with everything chosen that was left out, as far as it can be chosen.

    Region: the org's default where the engine runs there, else the first region that has the
    engine. Version: the newest. Storage: what the size includes.
    """
    region = order.region or _choose_region(order.engine, terms)
    versions = terms.catalogue.versions(order.engine, region) if region else ()
    size = SIZES.get(order.size)
    storage_bytes = order.storage_bytes
    if storage_bytes is None and size is not None:
        storage_bytes = size.storage_bytes_included
    return replace(
        order,
        region=region,
        engine_version=order.engine_version or next(iter(versions), None),
        storage_bytes=storage_bytes,
    )


def check_order(order: Order, terms: Terms) -> list[Violation]:
    """Everything that is wrong with the order; none, and it can be carried out."""
    settled = settle(order, terms)
    return [
        *_check_engine(settled, terms.catalogue),
        *_check_size(settled.size, terms.plan),
        *_check_placement(settled.placement, terms),
        *_check_storage(settled.size, settled.storage_bytes),
        *_check_quotas(order, settled.storage_bytes or 0, terms),
    ]


def preview(order: Order, terms: Terms, prices: PriceList) -> Preview:
    """What a valid order would come to; nothing is done."""
    settled = settle(order, terms)
    size, storage_bytes = settled.size, settled.storage_bytes or 0
    plan, usage = terms.plan, terms.usage
    return Preview(
        engine_version=settled.engine_version or "",
        region=settled.region or "",
        storage_bytes=storage_bytes,
        cost_usd_cents_per_month=prices.instance_month_cents(settled.region, size, storage_bytes),
        quota_left={
            "instances": _left(plan.instances_max, usage.instances + 1),
            "storage_bytes": _left(plan.storage_bytes_max, usage.storage_bytes + storage_bytes),
        },
    )


@dataclass(frozen=True)
class Alteration:
    """What a change asks for. None: stays as it is."""

    size: str | None = None
    storage_bytes: int | None = None
    engine_version: str | None = None
    placement: str | None = None


def check_alteration(now: Order, asked: Alteration, terms: Terms) -> list[Violation]:
    """Everything wrong with changing an instance that is `now` (settled) so.

    `terms.usage` counts this instance as it is.
    """
    size = asked.size or now.size
    storage_bytes = now.storage_bytes if asked.storage_bytes is None else asked.storage_bytes
    found: list[Violation] = []
    if asked.size is not None:
        found += _check_size(asked.size, terms.plan)
    if asked.size is not None or asked.storage_bytes is not None:
        found += _check_growth(now, asked, size, storage_bytes, terms)
    if asked.placement is not None:
        found += _check_move(now.placement, asked.placement)
    if asked.engine_version is not None:
        found += _check_upgrade(now, asked.engine_version, terms.catalogue)
    return found


def branch(source: Order, asked: Alteration) -> Order:
    """The order that a branch of an instance, which is `source` (settled), comes to."""
    storage_bytes = source.storage_bytes if asked.storage_bytes is None else asked.storage_bytes
    return replace(source, size=asked.size or source.size, storage_bytes=storage_bytes)


def check_branch(source: Order, asked: Alteration, terms: Terms) -> list[Violation]:
    """Everything wrong with branching an instance, which is `source`, so."""
    order = branch(source, asked)
    return [
        *_check_engine(order, terms.catalogue),
        *_check_size(order.size, terms.plan),
        *_check_placement(order.placement, terms),
        *_check_room(source, asked, order),
        *_check_quotas(order, order.storage_bytes or 0, terms),
    ]


def _check_room(source: Order, asked: Alteration, order: Order) -> Iterator[Violation]:
    """A branch must hold what its source may hold."""
    held, storage_bytes = source.storage_bytes or 0, order.storage_bytes or 0
    size = SIZES.get(order.size)
    if storage_bytes < held:
        message = f"it needs at least the storage of its source, {held} bytes"
        yield wrong("storage_bytes", "minimum", message)
    elif asked.storage_bytes is not None:
        yield from _check_storage(order.size, storage_bytes)
    elif size is not None and held > size.storage_bytes_max:
        yield _too_small(size.name, held)


def _choose_region(engine: str, terms: Terms) -> str | None:
    regions = terms.catalogue.regions_of(engine)
    if terms.default_region in regions:
        return terms.default_region
    return next(iter(regions or terms.catalogue.regions), None)


def _check_engine(order: Order, catalogue: Catalogue) -> Iterator[Violation]:
    offer = catalogue.offers.get(order.engine)
    if offer is None:
        known = _listed(ENGINES)
        yield wrong("engine", "enum", f"{order.engine!r} is not an engine; choose one of {known}")
        return
    region_known = order.region in catalogue.regions
    if order.region is not None and not region_known:
        known = _listed(catalogue.regions) or "none yet"
        kind = "a region" if order.placement == SHARED else f"a region with {order.placement} cells"
        yield wrong("region", "enum", f"{order.region!r} is not {kind}; available: {known}")
    if offer.status == "coming_soon":
        available = _listed(catalogue.available()) or "none yet"
        message = (
            f"{order.engine} is not available yet: {offer.reason}; available engines: {available}"
        )
        yield wrong("engine", "available", message)
    elif order.region is not None and region_known:
        yield from _check_version(order, order.region, catalogue)


def _check_version(order: Order, region: str, catalogue: Catalogue) -> Iterator[Violation]:
    versions = catalogue.versions(order.engine, region)
    if not versions:
        elsewhere = _listed(catalogue.regions_of(order.engine))
        message = f"{order.engine} is not available in {region}; choose one of {elsewhere}"
        yield wrong("region", "available", message)
    elif order.engine_version not in versions:
        message = (
            f"{order.engine} {order.engine_version!r} is not available in {region}; "
            f"choose one of {_listed(versions)}"
        )
        yield wrong("engine_version", "enum", message)


def _check_size(name: str, plan: Plan) -> Iterator[Violation]:
    if name not in SIZES:
        other = next((size for size in OTHER_SIZES if size.name == name), None)
        kind = f"{name!r} is not a size"
        if other is not None:
            kind = f"size {name!r} is of the {other.family} family, not for instances"
        yield wrong("size", "enum", f"{kind}; choose one of {_listed(SIZES)}")
    elif name not in plan.sizes:
        message = (
            f"the {plan.id} plan does not offer size {name}; it offers {_listed(plan.sizes)}, "
            f"and {name} needs the plan {_listed(plans_with_size(name), 'or')}"
        )
        yield wrong("size", "plan", message)


def _check_placement(placement: str, terms: Terms) -> Iterator[Violation]:
    if placement not in PLACEMENTS:
        message = f"{placement!r} is not a placement; choose one of {_listed(PLACEMENTS)}"
        yield wrong("placement", "enum", message)
        return
    if placement not in terms.plan.placements:
        needed = _listed(plans_with_placement(placement), "or")
        message = (
            f"the {terms.plan.id} plan does not offer {placement} placement; "
            f"it needs the plan {needed}"
        )
        yield wrong("placement", "plan", message)
    if placement == SECURE and not terms.baa_signed:
        message = (
            "secure placement needs a signed BAA; ask an owner of the organization to sign it"
            " (`GET …/compliance` shows the text, `POST …/compliance/baa/sign` signs it)"
        )
        yield wrong("placement", "baa", message)
    if not terms.is_offered:
        message = f"no cell offers {placement} placement; `GET /v1/regions` shows what is offered"
        yield wrong("placement", "available", message)


def _check_move(now: str, asked: str) -> Iterator[Violation]:
    """An instance stays on its cell, and a cell has instances of one placement only."""
    if asked not in PLACEMENTS:
        message = f"{asked!r} is not a placement; choose one of {_listed(PLACEMENTS)}"
        yield wrong("placement", "enum", message)
    elif asked != now:
        message = (
            f"an instance stays on its machine, and this one is for {now} placement; create a new"
            f" instance with {asked} placement and migrate the data into it"
        )
        yield wrong("placement", "available", message)


def _check_storage(name: str, storage_bytes: int | None) -> Iterator[Violation]:
    size = SIZES.get(name)
    if size is None or storage_bytes is None:
        return
    if storage_bytes > size.storage_bytes_max:
        message = (
            f"size {name} holds at most {gigabytes(size.storage_bytes_max)}; "
            f"{gigabytes(storage_bytes)} needs {_size_for(storage_bytes)}"
        )
        yield wrong("storage_bytes", "maximum", message)
    elif storage_bytes < size.storage_step_bytes:
        message = f"size {name} needs at least {gigabytes(size.storage_step_bytes)} of storage"
        yield wrong("storage_bytes", "minimum", message)
    elif storage_bytes % size.storage_step_bytes:
        step = size.storage_step_bytes
        below = storage_bytes - storage_bytes % step
        message = (
            f"storage of size {name} must be a multiple of {gigabytes(step)} ({step} bytes); "
            f"the nearest values are {below} and {below + step} bytes"
        )
        yield wrong("storage_bytes", "multipleOf", message)


def _check_quotas(order: Order, storage_bytes: int, terms: Terms) -> Iterator[Violation]:
    yield from quotas.check_one_more(terms.plan, terms.usage)
    # What a size includes was not asked for, so it is no fault where the size itself is one.
    if order.storage_bytes is not None or order.size in terms.plan.sizes:
        yield from quotas.check_more_storage(storage_bytes, terms.plan, terms.usage)


def _check_growth(
    now: Order, asked: Alteration, size: str, storage_bytes: int | None, terms: Terms
) -> Iterator[Violation]:
    before = now.storage_bytes or 0
    if asked.storage_bytes is not None and asked.storage_bytes < before:
        message = (
            f"storage can only grow and is {before} bytes now; for less, create a new instance"
        )
        yield wrong("storage_bytes", "minimum", message)
        return
    target = SIZES.get(size)
    if target is None or storage_bytes is None:
        return
    if asked.storage_bytes is None and storage_bytes > target.storage_bytes_max:
        yield _too_small(size, storage_bytes)
    elif asked.storage_bytes is not None:
        yield from _check_storage(size, storage_bytes)
        yield from quotas.check_more_storage(storage_bytes - before, terms.plan, terms.usage)


def _check_upgrade(now: Order, version: str, catalogue: Catalogue) -> Iterator[Violation]:
    offered = catalogue.versions(now.engine, now.region or "")
    if version != now.engine_version and version not in offered:
        message = (
            f"{now.engine} {version!r} is not available in {now.region}; "
            f"available: {_listed(offered) or 'none now'}"
        )
        yield wrong("engine_version", "enum", message)
    elif version_order(version) < version_order(now.engine_version or ""):
        message = (
            f"cannot downgrade {now.engine} from {now.engine_version} to {version}; restore "
            "a backup into a new instance instead"
        )
        yield wrong("engine_version", "minimum", message)


def _too_small(size: str, storage_bytes: int) -> Violation:
    message = (
        f"size {size} holds at most {gigabytes(SIZES[size].storage_bytes_max)} but the instance "
        f"has {gigabytes(storage_bytes)}; choose {_size_for(storage_bytes)}"
    )
    return wrong("size", "maximum", message)


def _size_for(storage_bytes: int) -> str:
    fitting = [size.name for size in SIZES.values() if size.storage_bytes_max >= storage_bytes]
    return f"size {fitting[0]} or larger" if fitting else "more than the largest size"


def _left(limit: int | None, used: int) -> int | None:
    return None if limit is None else max(0, limit - used)


def _listed(names: Iterable[str], last: str = "and") -> str:
    words = list(names)
    if len(words) < 2:  # noqa: PLR2004 -- one word needs no joining
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"
