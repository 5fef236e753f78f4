//! Parses the Python literal in an array header: text, whole numbers, booleans, tuples, lists, dicts, nothing else.

/// A Python literal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Literal {
    Text(String),
    Number(u64),
    Bool(bool),
    None,
    /// A tuple or a list.
    Seq(Vec<Literal>),
    Dict(Vec<(Literal, Literal)>),
}

/// How deep literals may nest; real headers reach three.
const MAX_DEPTH: u32 = 32;

/// The one literal that `text` holds, between white space.
pub(crate) fn parse(text: &[u8]) -> Option<Literal> {
    let mut parser = Parser { rest: text };
    let literal = parser.value(0)?;
    parser.space();
    // NumPy pads with spaces and ends with a line feed; some writers pad with zeros.
    parser.rest.iter().all(|&b| b == 0).then_some(literal)
}

struct Parser<'a> {
    rest: &'a [u8],
}

impl Parser<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn eat(&mut self, token: &[u8]) -> bool {
        self.space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self, depth: u32) -> Option<Literal> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.space();
        match self.rest.first()? {
            b'{' => self.items(b"}", |p| p.pair(depth)).map(Literal::Dict),
            b'(' => self.items(b")", |p| p.value(depth + 1)).map(Literal::Seq),
            b'[' => self.items(b"]", |p| p.value(depth + 1)).map(Literal::Seq),
            b'\'' | b'"' => self.text(),
            b'0'..=b'9' => self.number(),
            _ if self.eat(b"True") => Some(Literal::Bool(true)),
            _ if self.eat(b"False") => Some(Literal::Bool(false)),
            _ if self.eat(b"None") => Some(Literal::None),
            _ => None,
        }
    }

    fn pair(&mut self, depth: u32) -> Option<(Literal, Literal)> {
        let key = self.value(depth + 1)?;
        let value = self.eat(b":").then(|| self.value(depth + 1))??;
        Some((key, value))
    }

    /// What stands between brackets, of which the first is next.
    fn items<T>(&mut self, close: &[u8], item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        self.rest = self.rest.get(1..)?;
        let mut items = Vec::new();
        while !self.eat(close) {
            items.push(item(self)?);
            if !self.eat(b",") {
                return self.eat(close).then_some(items);
            }
        }
        Some(items)
    }

    /// Text without escapes: what would need one is in no header that holds tensors.
    fn text(&mut self) -> Option<Literal> {
        let (&quote, rest) = self.rest.split_first()?;
        let end = rest.iter().position(|&b| b == quote || b == b'\\')?;
        let (text, after) = rest.split_at_checked(end)?;
        self.rest = after.strip_prefix(&[quote])?;
        Some(Literal::Text(String::from_utf8_lossy(text).into_owned()))
    }

    fn number(&mut self) -> Option<Literal> {
        let len = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at_checked(len)?;
        // Python 2 wrote long integers with an L.
        self.rest = rest.strip_prefix(b"L").unwrap_or(rest);
        std::str::from_utf8(digits).ok()?.parse().ok().map(Literal::Number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_header_parses() {
        let text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }            \n";
        let Some(Literal::Dict(items)) = parse(text) else { panic!("no dict") };
        assert_eq!(items.len(), 3);
        assert_eq!(items[2].1, Literal::Seq(vec![Literal::Number(3), Literal::Number(4)]));
    }

    #[test]
    fn what_is_no_literal_is_refused() {
        for text in ["", "{", "{1}", "{1:", "(1 2)", "'a", "'a\\'b'", "__import__('os')", "1 1", "99999999999999999999"]
        {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse("(".repeat(100).as_bytes()), None);
        assert_eq!(parse(b"()"), Some(Literal::Seq(vec![])));
        assert_eq!(parse(b" (1L,) \0"), Some(Literal::Seq(vec![Literal::Number(1)])));
    }
}
