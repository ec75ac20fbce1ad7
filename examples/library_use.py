from pathlib import Path

from dapo.config import load_config
from dapo.inference import open_policy, sample_replies
from dapo.run import train_run
from dapo.types import Sampling

config = load_config(Path("recipes/quickstart.toml"), ["steps=4", "algorithm.clip_high=0.3"])
result = train_run(config, Path("runs/library"))
policy = open_policy(str(result.folder))
for reply in sample_replies(policy, "What is 7 * 8?", 4, Sampling(temperature=1.0, max_tokens=40), seed=0):
    print(reply.finish, repr(reply.text))
