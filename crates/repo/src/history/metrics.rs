//! Metric selectors in revisions: `@best`, `@worst`, `@min`, `@max`.

use mdl_store::{RepoError, Result};

/// Words in names of metrics that are better when lower. A few are looked for anywhere in a name; short ones would be
/// found in other words ("fid" in "confidence").
const DOWN: &str = "loss losses ppl perplexity err error errors wer cer per rmse mae mse mape nll bpb bpc fid kl \
    kld brier lpips";
const DOWN_ANYWHERE: [&str; 5] = ["loss", "perplexity", "error", "rmse", "nll"];
/// Words in names of metrics that are better when higher.
const UP: &str = "acc accuracy f1 bleu rouge rouge1 rouge2 rougel auc auroc map score reward psnr ssim iou miou \
    r2 precision recall em top1 top5 dice ndcg mrr mcc meteor chrf return";
const UP_ANYWHERE: [&str; 4] = ["accuracy", "reward", "bleu", "rouge"];

/// The end of a metric that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Best,
    Worst,
    Min,
    Max,
}

/// The operator at the front of `rest`, and what stands behind its parenthesis.
pub(crate) fn operator(rest: &str) -> Option<(End, &str)> {
    let all = [("@best(", End::Best), ("@worst(", End::Worst), ("@min(", End::Min), ("@max(", End::Max)];
    all.iter().find_map(|(text, end)| Some((*end, rest.strip_prefix(text)?)))
}

impl End {
    /// Whether the least value is wanted. Refuses best and worst where the metric's name does not tell which that is.
    pub(crate) fn is_least(self, metric: &str) -> Result<bool> {
        let unknown = || {
            RepoError::user(
                format!("whether less of {metric:?} is better is not known"),
                format!(
                    "say which end: @min({metric}) or @max({metric}). Known to count down: names with loss, ppl, perplexity, \
                     err, error, wer, cer, rmse, mae, mse, nll, bpb, bpc, fid, kl; up: acc, accuracy, f1, bleu, rouge, auc, \
                     map, score, reward, psnr, ssim, iou, r2 and the like"
                ),
            )
        };
        match self {
            End::Min => Ok(true),
            End::Max => Ok(false),
            End::Best => counts_down(metric).ok_or_else(unknown),
            End::Worst => counts_down(metric).map(|down| !down).ok_or_else(unknown),
        }
    }
}

/// Whether less is better, if the name tells. Words for lower come first: `accuracy_loss` is a loss.
fn counts_down(metric: &str) -> Option<bool> {
    let name = metric.to_ascii_lowercase();
    let has = |words: &str, anywhere: &[&str]| {
        let mut parts = name.split(|c: char| !c.is_alphanumeric());
        parts.any(|part| words.split(' ').any(|w| w == part)) || anywhere.iter().any(|w| name.contains(w))
    };
    if has(DOWN, &DOWN_ANYWHERE) {
        return Some(true);
    }
    has(UP, &UP_ANYWHERE).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_which_way_they_count() {
        for name in ["loss", "eval/loss", "trainLoss", "ppl", "word-error-rate", "val_kl", "FID", "accuracy_loss"] {
            assert_eq!(counts_down(name), Some(true), "{name}");
        }
        for name in ["acc", "top1", "eval/F1", "mean_reward", "r2", "ROUGE-L", "balanced_accuracy"] {
            assert_eq!(counts_down(name), Some(false), "{name}");
        }
        for name in ["confidence", "tokens", "skl", "lr"] {
            assert_eq!(counts_down(name), None, "{name}");
        }
    }

    #[test]
    fn ends_are_what_they_say() {
        assert_eq!(operator("@best(eval/loss)~1"), Some((End::Best, "eval/loss)~1")));
        assert_eq!(operator("@min(x"), Some((End::Min, "x")));
        assert_eq!(operator("~1"), None);
        let least = |end: End, name: &str| end.is_least(name).ok();
        assert_eq!(least(End::Best, "loss"), Some(true));
        assert_eq!(least(End::Worst, "acc"), Some(true));
        assert_eq!(least(End::Max, "loss"), Some(false));
        assert_eq!((least(End::Best, "lr"), least(End::Min, "lr")), (None, Some(true)));
    }
}
