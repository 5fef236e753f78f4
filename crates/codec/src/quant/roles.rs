//! Roles of tensors (embedding, norm, ...), told from name and shape.
//!
//! Knows the names of Hugging Face, timm, torchvision, llama (Meta's, Hugging Face's, GGUF's), GPT-2, nanoGPT, BERT and
//! T5.

/// The kinds of layer that are pruned apart (section 4.2: "per-layer type").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Tables of tokens or positions, and the output table over the tokens.
    Embedding,
    /// Convolutions.
    Conv,
    /// Projections of attention.
    Attention,
    /// Other matrices.
    Linear,
    /// Scales, shifts and statistics of normalisations.
    Norm,
    /// Biases.
    Bias,
    /// None of these.
    Other,
}

/// Tensors below this many elements stay lossless: they weigh nothing and bear little. (At 4,096 a small conv net's
/// shortcuts and head were half of every delta.)
const FEW: u64 = 1024;

/// Whether a tensor is not quantised at all: fewer than two dimensions, fewer than 1024 elements, or a role (norm,
/// bias) whose numbers are few and sensitive whatever their shape.
pub fn stays_lossless(role: Role, shape: &[u64]) -> bool {
    let elements = shape.iter().fold(1u64, |n, &d| n.saturating_mul(d));
    shape.len() < 2 || elements < FEW || matches!(role, Role::Norm | Role::Bias)
}

impl Role {
    /// Every role; `role as usize` is its place here.
    pub const ALL: [Role; 7] =
        [Role::Embedding, Role::Conv, Role::Attention, Role::Linear, Role::Norm, Role::Bias, Role::Other];

    /// Lower-case name: `embedding`, `conv`, ...
    pub const fn name(self) -> &'static str {
        match self {
            Role::Embedding => "embedding",
            Role::Conv => "conv",
            Role::Attention => "attention",
            Role::Linear => "linear",
            Role::Norm => "norm",
            Role::Bias => "bias",
            Role::Other => "other",
        }
    }

    /// The role with this name.
    pub fn from_name(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|r| r.name() == name)
    }

    /// The role that the name (parts between dots or slashes, any case) and the shape suggest. First match wins: norm,
    /// bias, embedding, attention, convolution, matrix.
    pub fn infer(name: &str, shape: &[u64]) -> Role {
        let name = name.to_ascii_lowercase();
        let parts: Vec<&str> = name.split(['.', '/', ':']).filter(|p| !p.is_empty()).collect();
        let last = parts.last().copied().unwrap_or_default();
        // The layer that owns the parameter, and the parameter: `attention.output.LayerNorm.weight` is a norm, and
        // `post_attention_layernorm.weight` too.
        let owner = &parts[parts.len().saturating_sub(2)..];
        if owner.iter().any(|p| is_norm(p)) || STATISTICS.contains(&last) {
            return Role::Norm;
        }
        if shape.len() < 2 {
            return one_dimensional(last);
        }
        // GPT-2 keeps its causal mask, [1, 1, n, n], as `attn.bias`.
        if is_bias(last) {
            return if shape.len() == 2 { Role::Bias } else { Role::Other };
        }
        if last.contains("mask") || last == "position_ids" {
            return Role::Other;
        }
        // A patch embedding is a convolution, or a matrix over flattened patches, and no table.
        let patches = parts.iter().any(|p| p.starts_with("patch_embed"));
        if !patches && shape.len() < 4 && is_embedding(&parts, owner) {
            return Role::Embedding;
        }
        if parts.iter().any(|p| is_attention(p)) {
            return Role::Attention;
        }
        let experts = parts.iter().any(|p| p.contains("expert"));
        if owner.iter().any(|p| p.contains("conv")) || (shape.len() > 2 && !experts) {
            return Role::Conv;
        }
        let matrix = last == "weight" || last.starts_with("weight_") || last.ends_with("_weight") || last == "kernel";
        if matrix || experts { Role::Linear } else { Role::Other }
    }
}

const STATISTICS: [&str; 4] = ["running_mean", "running_var", "num_batches_tracked", "moving_variance"];

/// `LayerNorm`, `ln_1`, `ln_f`, `bn1`, `attention_norm`, `q_norm`, `ffn_norm`, `norm2`, `rmsnorm`, `groupnorm`.
fn is_norm(part: &str) -> bool {
    let word = |p: &str, w: &str| p.strip_prefix(w).is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()));
    let words = part.split('_').any(|p| word(p, "bn") || word(p, "ln") || word(p, "gn"));
    part.contains("norm") || words
}

fn is_bias(last: &str) -> bool {
    last == "bias" || last.ends_with("_bias") || last.starts_with("bias_")
}

/// A vector is a bias or, like a ResNet's `downsample.1.weight`, a scale.
fn one_dimensional(last: &str) -> Role {
    match last {
        _ if is_bias(last) || last == "beta" => Role::Bias,
        "weight" | "gamma" | "scale" => Role::Norm,
        _ => Role::Other,
    }
}

/// Tables: `wte`, `embed_tokens`, `tok_embeddings`, `token_embd`, `word_embeddings`, `pos_embed`, `cls_token`, relative
/// position biases; and what maps back to tokens: `lm_head`, `embed_out`, llama's `output`, BERT's
/// `predictions.decoder`.
fn is_embedding(parts: &[&str], owner: &[&str]) -> bool {
    let table = |p: &&str| {
        matches!(*p, "wte" | "wpe" | "shared" | "lm_head" | "cls_token" | "dist_token")
            || ["embed", "embd", "position_bias", "attention_bias"].iter().any(|w| p.contains(w))
    };
    let back = matches!(parts, ["output", "weight"] | [.., "predictions", "decoder", "weight"]);
    back || owner.iter().any(table)
}

/// `attn`, `self_attention`, `q_proj`, `wq`, `query`, `in_proj_weight`, T5's `SelfAttention.q`.
fn is_attention(part: &str) -> bool {
    match part {
        "q_proj" | "k_proj" | "v_proj" | "o_proj" | "out_proj" | "qkv" | "qkv_proj" | "query" | "key" | "value" => true,
        "query_key_value" | "wq" | "wk" | "wv" | "wo" | "in_proj_weight" | "to_qkv" => true,
        _ => part.contains("attn") || part.contains("attention"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_known_names() {
        use Role::*;
        let table: &[(&str, &[u64], Role)] = &[
            // GPT-2 and nanoGPT
            ("transformer.wte.weight", &[50257, 768], Embedding),
            ("wpe.weight", &[1024, 768], Embedding),
            ("h.0.ln_1.weight", &[768], Norm),
            ("h.0.ln_1.bias", &[768], Norm),
            ("h.0.attn.c_attn.weight", &[768, 2304], Attention),
            ("h.0.attn.c_attn.bias", &[2304], Bias),
            ("h.0.attn.bias", &[1, 1, 1024, 1024], Other),
            ("h.0.attn.c_proj.weight", &[768, 768], Attention),
            ("h.0.mlp.c_fc.weight", &[768, 3072], Linear),
            ("h.0.mlp.c_proj.weight", &[3072, 768], Linear),
            ("transformer.ln_f.weight", &[768], Norm),
            ("lm_head.weight", &[50257, 768], Embedding),
            // BERT
            ("bert.embeddings.word_embeddings.weight", &[30522, 768], Embedding),
            ("embeddings.LayerNorm.weight", &[768], Norm),
            ("embeddings.position_ids", &[1, 512], Other),
            ("encoder.layer.0.attention.self.query.weight", &[768, 768], Attention),
            ("encoder.layer.0.attention.output.dense.weight", &[768, 768], Attention),
            ("encoder.layer.0.attention.output.LayerNorm.bias", &[768], Norm),
            ("encoder.layer.0.intermediate.dense.weight", &[3072, 768], Linear),
            ("encoder.layer.0.intermediate.dense.bias", &[3072], Bias),
            ("pooler.dense.weight", &[768, 768], Linear),
            ("cls.predictions.decoder.weight", &[30522, 768], Embedding),
            // llama: Hugging Face, Meta, GGUF
            ("model.embed_tokens.weight", &[32000, 4096], Embedding),
            ("model.layers.0.self_attn.q_proj.weight", &[4096, 4096], Attention),
            ("model.layers.0.mlp.gate_proj.weight", &[11008, 4096], Linear),
            ("model.layers.0.post_attention_layernorm.weight", &[4096], Norm),
            ("model.norm.weight", &[4096], Norm),
            ("tok_embeddings.weight", &[32000, 4096], Embedding),
            ("layers.0.attention.wq.weight", &[4096, 4096], Attention),
            ("layers.0.feed_forward.w1.weight", &[11008, 4096], Linear),
            ("layers.0.attention_norm.weight", &[4096], Norm),
            ("output.weight", &[32000, 4096], Embedding),
            ("token_embd.weight", &[32000, 4096], Embedding),
            ("blk.0.attn_q.weight", &[4096, 4096], Attention),
            ("blk.0.ffn_up.weight", &[11008, 4096], Linear),
            ("model.layers.0.mlp.experts.gate_up_proj", &[8, 1024, 2048], Linear),
            // T5
            ("shared.weight", &[32128, 512], Embedding),
            ("encoder.block.0.layer.0.SelfAttention.q.weight", &[512, 512], Attention),
            ("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", &[32, 8], Embedding),
            ("encoder.block.0.layer.1.DenseReluDense.wi.weight", &[2048, 512], Linear),
            // timm and Hugging Face ViT
            ("cls_token", &[1, 1, 768], Embedding),
            ("pos_embed", &[1, 197, 768], Embedding),
            ("patch_embed.proj.weight", &[768, 3, 16, 16], Conv),
            ("vit.embeddings.patch_embeddings.projection.weight", &[768, 3, 16, 16], Conv),
            ("vit.embeddings.position_embeddings", &[1, 197, 768], Embedding),
            ("blocks.0.norm1.weight", &[768], Norm),
            ("blocks.0.attn.qkv.weight", &[2304, 768], Attention),
            ("blocks.0.mlp.fc1.weight", &[3072, 768], Linear),
            ("head.weight", &[1000, 768], Linear),
            ("layers.0.blocks.0.attn.relative_position_bias_table", &[169, 3], Embedding),
            // torchvision ResNet and ViT
            ("conv1.weight", &[64, 3, 7, 7], Conv),
            ("layer1.0.bn1.running_mean", &[64], Norm),
            ("layer1.0.downsample.0.weight", &[256, 64, 1, 1], Conv),
            ("layer1.0.downsample.1.weight", &[256], Norm),
            ("fc.weight", &[1000, 2048], Linear),
            ("fc.bias", &[1000], Bias),
            ("encoder.layers.encoder_layer_0.self_attention.in_proj_weight", &[3072, 1024], Attention),
            ("encoder.layers.encoder_layer_0.ln_1.weight", &[1024], Norm),
            // wav2vec, LSTM, nonsense
            ("feature_extractor.conv_layers.0.conv.weight", &[512, 1, 10], Conv),
            ("lstm.weight_ih_l0", &[1024, 40], Linear),
            ("lstm.bias_ih_l0", &[1024], Bias),
            ("A_log", &[5120, 16], Other),
            ("", &[8, 8], Other),
            ("..", &[], Other),
        ];
        for &(name, shape, role) in table {
            assert_eq!(Role::infer(name, shape), role, "{name} {shape:?}");
        }
    }

    #[test]
    fn names_and_what_stays_lossless() {
        for (i, role) in Role::ALL.into_iter().enumerate() {
            assert_eq!((role as usize, Role::from_name(role.name())), (i, Some(role)));
        }
        assert!(stays_lossless(Role::Linear, &[1023, 1]) && stays_lossless(Role::Linear, &[100_000]));
        assert!(stays_lossless(Role::Norm, &[64, 64]) && stays_lossless(Role::Linear, &[]));
        assert!(!stays_lossless(Role::Linear, &[64, 64]) && !stays_lossless(Role::Conv, &[u64::MAX, u64::MAX]));
        assert!(stays_lossless(Role::Conv, &[u64::MAX, 0]));
    }
}
