//! Finding tensors in files of every format, sound, odd and damaged.

mod check;
mod gguf;
mod legacy;
mod legacy_damage;
mod pickle;
mod safetensors;
mod support;
mod torch;
mod zip;
