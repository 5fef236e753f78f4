"""The frameworks' own places for checkpoints, each one line for the user; every module imports its framework and no
other.

| framework | the line |
|---|---|
| Hugging Face Trainer | `Trainer(..., callbacks=[mdl.integrations.transformers.MdlCallback("runs")])` |
| Lightning | `Trainer(..., callbacks=[mdl.integrations.lightning.MdlCallback("runs")])` |
| Accelerate | `mdl.integrations.accelerate.save_state(accelerator, "runs", step=step)` |
| Composer | `Trainer(..., callbacks=[mdl.integrations.composer.MdlCallback("runs")])` |
| Keras | `model.fit(..., callbacks=[mdl.integrations.keras.MdlCallback("runs")])` |

`import mdl.integrations.lightning` is what loads a framework; this package loads none.
"""
