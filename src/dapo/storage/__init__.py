"""What a run leaves on disk, readable without this program.

| module     | what is in it                                                       |
|------------|---------------------------------------------------------------------|
| run_folder | the folder and its files: config, metrics, evaluations, rollouts    |
| rollouts   | a generated group as a line of JSON                                 |
| checkpoint | a checkpoint: policy in Hugging Face format and all that resume needs |
| manifest   | size and hash of every file of a checkpoint, and what is damaged    |
| saver      | checkpoints written beside training                                 |
| evaluation_folder | an evaluation: settings, replies, numbers                    |
"""
