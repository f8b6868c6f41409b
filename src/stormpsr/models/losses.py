"""The supervised contrastive loss, in the paper's form and in the common one.

Shape legend: B images of a batch, Q images they are compared with, D dimensions.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

SupConForm = Literal["paper", "common"]


def supervised_contrastive_loss(
    z_BD: Tensor,
    label_B: Tensor,
    *,
    temperature: float,
    margin: float,
    form: SupConForm,
    own_B: Tensor | None = None,
    others_QD: Tensor | None = None,
    other_label_Q: Tensor | None = None,
) -> Tensor:
    """How badly images of one state keep together and apart from those of others, averaged over the images.

    For image i with partners P(i) (same label) among all other images A(i), and s the cosine over the temperature:

    - `paper`: `-log( 1/|P(i)| * sum_p exp(s_ip) / sum_a exp(s_ia) )`, the paper's equation: the mean over the
      partners stands inside the logarithm, so one close partner is enough.
    - `common`: `-1/|P(i)| * sum_p log( exp(s_ip) / sum_a exp(s_ia) )`: every partner has to be close.

    Where the paper leaves room, this is what is done:

    - A(i) leaves out i itself. The paper's text includes it, but an image is always closest to itself: the fraction
      would be near one whatever the network does.
    - The margin (0.01 in the paper's settings, absent from its equation) is subtracted from the cosines of partners,
      above and below the fraction line: partners count as close only if they are closer than strangers by the margin.
      A margin of 0 is the equation as printed.
    - The mean over the images is taken, not the sum, so that the learning rate does not depend on the batch size.
      Images without a partner are left out of it.

    `z_BD` must have unit length. `others_QD` are the images to compare with, the batch itself by default; where
    several processes share a batch, they are the whole batch, and `own_B` are the places of `z_BD` in it.
    """
    if others_QD is None or other_label_Q is None or own_B is None:
        others_QD, other_label_Q = z_BD, label_B
        own_B = torch.arange(len(z_BD), device=z_BD.device)
    itself_BQ = own_B[:, None] == torch.arange(len(others_QD), device=z_BD.device)
    partner_BQ = (label_B[:, None] == other_label_Q) & ~itself_BQ
    similarity_BQ = (z_BD @ others_QD.T - margin * partner_BQ.to(z_BD.dtype)) / temperature
    similarity_BQ = similarity_BQ.masked_fill(itself_BQ, float("-inf"))
    log_share_BQ = similarity_BQ - torch.logsumexp(similarity_BQ, dim=1, keepdim=True)
    n_partners_B = partner_BQ.sum(dim=1).to(z_BD.dtype)
    counted_B = n_partners_B > 0
    if form == "paper":
        inside_BQ = log_share_BQ.masked_fill(~partner_BQ, float("-inf"))[counted_B]
        loss_B = n_partners_B[counted_B].log() - torch.logsumexp(inside_BQ, dim=1)
    else:
        inside_BQ = log_share_BQ.masked_fill(~partner_BQ, 0.0)[counted_B]
        loss_B = -inside_BQ.sum(dim=1) / n_partners_B[counted_B]
    return loss_B.sum() / counted_B.sum().clamp(min=1)
