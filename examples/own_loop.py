import torch

from dapo.maths.advantages import group_normalised
from dapo.maths.losses import clipped
from dapo.maths.weights import token_mean

# Four replies (B) of up to three tokens (T), two to each of two questions.
logprobs_BT = torch.full((4, 3), -1.0, requires_grad=True)
old_logprobs_BT = torch.full((4, 3), -1.1)
mask_BT = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=torch.bool)
rewards_B, group_B = torch.tensor([1.0, -1.0, -1.0, 1.0]), torch.tensor([0, 0, 1, 1])

advantages_BT = group_normalised(rewards_B, group_B).unsqueeze(1) * mask_BT
loss_BT = clipped(logprobs_BT, old_logprobs_BT, advantages_BT, clip_low=0.2, clip_high=0.28).loss_BT
weight_BT = token_mean(mask_BT, group_B)  # once, from the whole batch: nothing divides again
loss = (weight_BT * loss_BT).sum()
loss.backward()
print(f"loss {loss.item():+.4f}, gradient of the first reply {logprobs_BT.grad[0].tolist()}")
