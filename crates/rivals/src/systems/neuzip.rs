//! NeuZip's lossy variant as a baseline system: exponents entropy-coded, signs and mantissas packed, a byte a block. It
//! uses no parent.

use crate::systems::{Coder, Kept, SystemPlan, Tensor, count, from_segments, packed, segments};
use mdl_codec::{
    Dtype, Result,
    engine_internals::{Cursor, put_varint},
    quant::{
        Values,
        neuzip::{Code, Coded, quantise, reconstruct},
    },
};

#[derive(Debug)]
pub(super) struct NeuZip {
    pub(super) keep: u32,
    pub(super) block: usize,
}

impl Coder for NeuZip {
    fn encode(&self, t: &Tensor<'_>, _: &SystemPlan, _: Option<&Kept>) -> Result<Option<Vec<u8>>> {
        let Some(coded) = quantise(Values::new(t.dtype, t.bytes)?, self.keep, self.block)? else {
            return Ok(None);
        };
        let mut out = Vec::new();
        let exponents: Vec<u8> = coded.codes.iter().map(|c| c.exponent).collect();
        for bytes in [&exponents, &coded.mantissas] {
            let part = segments(Dtype::U8, bytes, None, None)?;
            put_varint(&mut out, part.len() as u64);
            out.extend_from_slice(&part);
        }
        let rest = coded.codes.iter().map(|c| u16::from(c.rest));
        packed::put(&mut out, rest, 1 + self.keep);
        Ok(Some(out))
    }

    fn decode(&self, body: &[u8], dtype: Dtype, shape: &[usize], _: Option<&Kept>) -> Result<Kept> {
        let (mut cursor, n) = (Cursor::new(body), count(shape));
        let mut part = |n: usize| {
            let len = cursor.varint()?;
            from_segments(Dtype::U8, cursor.take(len)?, n, None)
        };
        let (exponents, mantissas) = (part(n)?, part(n.div_ceil(self.block))?);
        let rest = packed::get(&mut cursor, n, 1 + self.keep)?;
        cursor.done()?;
        let code = |(exponent, rest): (u8, u16)| Code { exponent: exponent.min(254), rest: rest as u8 };
        let codes = exponents.into_iter().zip(rest).map(code).collect();
        let coded = Coded { codes, mantissas };
        Ok(Kept::new(dtype, shape, reconstruct(dtype, &coded, self.keep, self.block)?))
    }
}
