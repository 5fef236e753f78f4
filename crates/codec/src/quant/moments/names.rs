//! Recognises moment tensors by their names.

use crate::quant::moments::Moment;

/// The moment that a tensor of this name holds: one of its parts, between dots, bars, slashes or colons, is what an
/// optimizer calls it. The last such part counts.
///
/// Knows torch's Adam family (`exp_avg`, `exp_avg_sq`, AMSGrad's `max_exp_avg_sq`, NAdam, Lion), SGD and Muon
/// (`momentum_buffer`), RMSprop (`square_avg`), Adadelta and their fused, sharded and flattened kin, which keep these
/// words: `state.3.exp_avg`, `optimizer_state_dict.state.3.exp_avg_sq`, `optimizer.exp_avg.wte.weight`,
/// `wte.weight|exp_avg`. Adafactor's row and column statistics are vectors and no moments.
///
/// ```
/// use mdl_codec::quant::moments::{Moment, moment_of};
/// assert_eq!(moment_of("optimizer.state.0.exp_avg_sq"), Some(Moment::Second));
/// assert_eq!(moment_of("transformer.wte.weight"), None);
/// ```
pub fn moment_of(name: &str) -> Option<Moment> {
    name.rsplit(['.', '|', '/', ':']).find_map(|part| match part {
        "exp_avg" => Some(Moment::First),
        "exp_avg_sq" | "max_exp_avg_sq" | "square_avg" => Some(Moment::Second),
        "momentum_buffer" => Some(Moment::Momentum),
        _ => None,
    })
}
