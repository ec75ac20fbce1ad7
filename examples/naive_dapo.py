"""DAPO in one file, to be read from top to bottom: no class, no config, one update after the other, nothing hidden.

    sample G replies to a question -> score them by a rule -> drop groups without a signal
    -> compare the replies of a group with each other -> make the better ones likelier, within bounds -> again

Equations are those of the DAPO paper, arXiv 2503.14476. In brackets stands the file in which this project does
the same for real: batched, checked, resumable.

    python examples/naive_dapo.py --model FOLDER_OR_HUB_ID --steps 12
"""

import argparse
import random
import re

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def make_problem():
    """Return a question and its answer. [src/dapo/tasks/arithmetic.py]"""
    if random.random() < 0.5:
        left, right = random.randint(0, 99), random.randint(0, 99)
        return f"What is {left} + {right}? Answer with just the number.", left + right
    left, right = random.randint(0, 20), random.randint(0, 12)
    return f"What is {left} * {right}? Answer with just the number.", left * right


def is_right(reply, answer):
    """Whether the last number in the reply is the answer. [src/dapo/tasks/integers.py]"""
    numbers = re.findall(r"-?\d+", reply)
    return bool(numbers) and numbers[-1] == str(answer)


def soft_overlong(length, max_length, cache):
    """Eq. 13: 0 up to max_length - cache tokens, then a slope down to -1. [src/dapo/maths/overlong.py]"""
    return -min(1.0, max(0.0, (length - (max_length - cache)) / cache))


def group_advantages(rewards):
    """Eq. 9: how much better than its siblings a reply is, in deviations. [src/dapo/maths/advantages.py]"""
    return (rewards - rewards.mean()) / (rewards.std() + 1e-6)


@torch.no_grad()
def sample_group(model, tokenizer, question, group_size, max_tokens):
    """Draw G replies from the policy as it is. [src/dapo/engines/hf.py]"""
    chat = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    # top_k=0 and top_p=1 matter: generate's own default keeps the 50 likeliest tokens only, and then the replies come
    # from another distribution than the one whose log-probabilities the ratio below is made of.
    rows = model.generate(
        input_ids=prompt["input_ids"],
        attention_mask=prompt["attention_mask"],
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        num_return_sequences=group_size,
        max_new_tokens=max_tokens,
        pad_token_id=tokenizer.eos_token_id,
    )
    replies = rows[:, prompt["input_ids"].shape[1] :]
    end_tokens = torch.tensor(model.generation_config.eos_token_id).reshape(-1)
    ends = torch.isin(replies, end_tokens)
    mask = ends.cumsum(dim=1) - ends.int() == 0  # the reply with its first end token; what follows is padding
    return {"rows": rows, "replies": replies, "mask": mask, "truncated": ~ends.any(dim=1)}


def score_group(tokenizer, group, answer, max_tokens, cache):
    """Eq. 7 and 13: +1 or -1 by the rule, plus the length's part. [src/dapo/tasks/rewards.py, src/dapo/collect/attempts.py]"""
    right, rewards = [], []
    for tokens, mask, truncated in zip(group["replies"], group["mask"], group["truncated"], strict=True):
        text = tokenizer.decode(tokens[mask], skip_special_tokens=True)
        right.append(is_right(text, answer) and not truncated)  # a number where it was cut off is no answer
        rewards.append((1.0 if right[-1] else -1.0) + soft_overlong(int(mask.sum()), max_tokens, cache))
    return right, torch.tensor(rewards)


def reply_logprobs(model, group):
    """Log-probability of each reply token, [G, T]. [src/dapo/trainers/forward.py]"""
    # The rows share their prompt and are padded on the right, where a causal model does not look: no mask is needed.
    width = group["replies"].shape[1]
    logits = model(group["rows"]).logits[:, -width - 1 : -1]  # the logits at a position predict the token after it
    return logits.float().log_softmax(dim=-1).gather(-1, group["replies"].unsqueeze(-1)).squeeze(-1)


def dapo_loss(logprobs, old_logprobs, advantages, mask, num_tokens, clip_low, clip_high):
    """Eq. 8, negated; tensors [G, T], advantages [G]. [src/dapo/maths/losses.py, src/dapo/maths/weights.py]

    Clip-higher (section 3.1): the upper bound lies further away than the lower one, so that a token that was unlikely
    may become likely. Token-level loss (section 3.3): the sum is divided by the tokens of the whole update, and not
    reply by reply, so each token weighs the same in a short reply and in a long one.
    """
    ratio = (logprobs - old_logprobs).exp()
    plain = ratio * advantages.unsqueeze(1)
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high) * advantages.unsqueeze(1)
    return -(torch.minimum(plain, bounded) * mask).sum() / num_tokens


def update(model, optimizer, groups, clip_low, clip_high):
    """One optimizer step over some groups, one group at a time. [src/dapo/trainers/core.py]"""
    num_tokens = sum(int(group["mask"].sum()) for group in groups)  # known before the first backward, for all groups
    total = 0.0
    for group in groups:
        logprobs = reply_logprobs(model, group)
        loss = dapo_loss(
            logprobs, group["old_logprobs"], group["advantages"], group["mask"], num_tokens, clip_low, clip_high
        )
        loss.backward()  # gradients add up, and nothing divides them again
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return total


def train(model, tokenizer, args):
    """The loop. [src/dapo/loop.py, src/dapo/collect/step.py]"""
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.1)
    cache = max(1, args.max_tokens // 5)
    for step in range(1, args.steps + 1):
        # Dynamic sampling (Eq. 11): go on until enough groups hold both right and wrong replies. It looks at right and
        # wrong alone: replies that are all wrong and differ in length have different rewards, and nothing to teach.
        kept, all_right, lengths, tried = [], [], [], 0
        while len(kept) < args.groups and tried < args.groups * args.max_rounds:
            tried += 1
            question, answer = make_problem()
            group = sample_group(model, tokenizer, question, args.group_size, args.max_tokens)
            right, rewards = score_group(tokenizer, group, answer, args.max_tokens, cache)
            all_right += right
            lengths += group["mask"].sum(dim=1).tolist()
            if 0 < sum(right) < args.group_size:
                kept.append({**group, "advantages": group_advantages(rewards)})
        if not kept:
            print(f"step {step}: all right or all wrong in each of {tried} groups, nothing to learn from", flush=True)
            continue
        # The old policy of the ratio is the one that sampled: fixed here, before the first update of the step.
        with torch.no_grad():
            for group in kept:
                group["old_logprobs"] = reply_logprobs(model, group)
        size = -(-len(kept) // args.updates)
        losses = [
            update(model, optimizer, kept[start : start + size], args.clip_low, args.clip_high)
            for start in range(0, len(kept), size)
        ]
        print(
            f"step {step}: accuracy {sum(all_right) / len(all_right):.1%}, kept {len(kept)} of {tried} groups, "
            f"length {sum(lengths) / len(lengths):.1f}, loss {sum(losses) / len(losses):+.4f}",
            flush=True,
        )


def main(arguments=None):
    parser = argparse.ArgumentParser(description="DAPO in one file, for reading.")
    parser.add_argument("--model", required=True, help="a chat model: a folder in Hugging Face format, or a Hub id")
    parser.add_argument("--steps", type=int, default=12, help="rollout steps")
    parser.add_argument("--groups", type=int, default=8, help="groups with a signal that a step trains on")
    parser.add_argument("--group-size", type=int, default=8, help="G, replies to each question")
    parser.add_argument("--updates", type=int, default=2, help="updates a step; with 1 the ratio is 1 and no clip acts")
    parser.add_argument("--max-rounds", type=int, default=4, help="a step tries so many times --groups questions")
    parser.add_argument("--max-tokens", type=int, default=40, help="limit on the tokens of a reply")
    parser.add_argument("--learning-rate", type=float, default=1e-5)
    parser.add_argument("--clip-low", type=float, default=0.2)
    parser.add_argument("--clip-high", type=float, default=0.28)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", help="folder for the trained model; `dapo sample FOLDER QUESTION` talks to it")
    args = parser.parse_args(arguments)
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)  # in evaluation mode: no dropout
    train(model, tokenizer, args)
    if args.save:
        model.save_pretrained(args.save)
        tokenizer.save_pretrained(args.save)


if __name__ == "__main__":
    main()
