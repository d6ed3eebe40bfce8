"""What only some plans include."""

from control.policy.plans import PLANS
from handlers.calls import OrgCall
from specserver import Forbidden


def require_custom_roles(call: OrgCall) -> None:
    if not PLANS[call.org.plan].custom_roles:
        plans = " or ".join(name for name, plan in PLANS.items() if plan.custom_roles)
        raise Forbidden(
            f"roles of your own need the plan {plans}; this is the {call.org.plan} plan",
            code="plan_required",
        )
