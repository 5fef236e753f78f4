"""Integrations with training frameworks and trackers, one line each; a module imports its framework and no other.

| framework | the line |
|---|---|
| Hugging Face Trainer | `Trainer(..., callbacks=[mdl.integrations.transformers.MdlCallback("runs")])` |
| Lightning | `Trainer(..., callbacks=[mdl.integrations.lightning.MdlCallback("runs")])` |
| Accelerate | `mdl.integrations.accelerate.save_state(accelerator, "runs", step=step)` |
| Composer | `Trainer(..., callbacks=[mdl.integrations.composer.MdlCallback("runs")])` |
| Keras | `model.fit(..., callbacks=[mdl.integrations.keras.MdlCallback("runs")])` |
| PyTorch DCP | `dcp.save(state, storage_writer=mdl.integrations.dcp.MdlWriter("runs", step=step))` |
| the Trainer, lossy | `Trainer(..., callbacks=[mdl.integrations.transformers.CompressorCallback("runs", evaluate)])` |
| W&B | `mdl.integrations.wandb.track(repo)` |
| MLflow | `mdl.integrations.mlflow.track(repo)` |
| TensorBoard | `mdl.integrations.tensorboard.track(repo, writer)` |
| Aim | `mdl.integrations.aim.track(repo, run)` |
| fsspec | `fsspec.open("mdl:///runs/gpt/model.safetensors@main~2")` |

`import mdl.integrations.lightning` is what loads a framework; this package loads none.
"""
