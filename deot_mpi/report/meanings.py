"""What the named values are, in one line each; the same words on the screen and in a report."""

from __future__ import annotations

EOT_MEANINGS = {
    "dual_objective": "F(u,v), the paper's W~_eps",
    "regularised_cost": "F + eps = <C,pi> + eps KL(pi|R); OTT reg_ot_cost, GeomLoss value",
    "transport_cost": "<C,pi>; POT sinkhorn2",
    "entropy_cost": "<C,pi> - eps H(pi), the paper's eq. 2",
}
DIVERGENCE_MEANINGS = {
    "sinkhorn_divergence": "W(mu,gamma) - W(mu,mu)/2 - W(gamma,gamma)/2, W the regularised_cost",
    "source_self_term": "W(mu,mu), regularised_cost of the sources with themselves",
    "target_self_term": "W(gamma,gamma), the same for the targets",
}
GROMOV_MEANINGS = {
    "dual_objective": "alpha (S_X + S_Y - S_XY + 32 |P|^2) + F(u,v)",
    "regularised_cost": "the cost + eps KL(pi|R)",
    "transport_cost": "the cost of the plan, without regularisation; POT gw_dist",
    "entropy_cost": "the cost - eps H(pi)",
}
EOT_UNITS = "cost units: squared data units"
GROMOV_UNITS = "cost units: squared squared distances, the fourth power of data units"
