//! Expressions over the metrics of a version, such as `loss < 2 and (acc >= 0.9 or not has(acc))`.

use mdl_store::RepoError;
use std::{fmt, iter::Peekable, str::CharIndices};
use thiserror::Error;

/// Bytes of an expression at most.
const LONGEST: usize = 4096;
/// How deep parentheses and `not` may go.
const DEEPEST: usize = 64;

/// Why a text is no expression; the places are counted in characters from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExpressionError {
    /// There is nothing.
    #[error("the expression is empty")]
    Empty,
    /// It is too long.
    #[error("the expression has more than {LONGEST} bytes")]
    TooLong,
    /// It goes too deep.
    #[error("the expression has more than {DEEPEST} parentheses or `not` inside each other")]
    TooDeep,
    /// Something else is wanted at a place.
    #[error("at character {at}: {wanted} is wanted, not {found}")]
    Unexpected {
        /// The place.
        at: usize,
        /// What could stand there.
        wanted: &'static str,
        /// What stands there.
        found: String,
    },
    /// A quoted name has no end.
    #[error("at character {at}: the quoted name has no end")]
    OpenQuote {
        /// Where it begins.
        at: usize,
    },
}

impl ExpressionError {
    /// As an error of wrong usage, with how an expression is written.
    pub fn into_usage(self) -> RepoError {
        RepoError::usage(
            self.to_string(),
            "write comparisons of metrics with numbers: loss<2, acc>=0.9, step=1000, \"eval loss\"!=0, has(acc), joined by \
             and, or, not and parentheses",
        )
    }
}

/// How two numbers compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

impl Comparison {
    fn holds(self, a: f64, b: f64) -> bool {
        match self {
            Comparison::Less => a < b,
            Comparison::LessOrEqual => a <= b,
            Comparison::Greater => a > b,
            Comparison::GreaterOrEqual => a >= b,
            // `nan` stands for what is not a number, which equals nothing else.
            Comparison::Equal => a == b || a.is_nan() && b.is_nan(),
            Comparison::NotEqual => !Comparison::Equal.holds(a, b),
        }
    }
}

/// An expression over metrics. A comparison of a metric that a version does not have is false.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression(Node);

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Compare(String, Comparison, f64),
    Has(String),
    Not(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
}

impl Expression {
    /// Reads one.
    ///
    /// # Errors
    /// The text is none: where, and what is wanted there.
    pub fn parse(text: &str) -> Result<Expression, ExpressionError> {
        if text.len() > LONGEST {
            return Err(ExpressionError::TooLong);
        }
        let mut parser = Parser { tokens: tokens(text)?.into_iter().peekable(), end: text.chars().count() + 1 };
        if parser.tokens.peek().is_none() {
            return Err(ExpressionError::Empty);
        }
        let node = parser.either(0)?;
        match parser.tokens.next() {
            None => Ok(Expression(node)),
            Some((at, found)) => Err(unexpected(at, "`and`, `or` or the end", &found)),
        }
    }

    /// Whether it holds of a version, whose metrics `value` gives.
    pub fn holds(&self, value: &dyn Fn(&str) -> Option<f64>) -> bool {
        self.0.holds(value)
    }

    /// The first metric that it names: listings are sorted by it.
    pub fn first_name(&self) -> &str {
        let mut node = &self.0;
        loop {
            match node {
                Node::Compare(name, ..) | Node::Has(name) => return name,
                Node::Not(inner) => node = inner,
                Node::And(all) | Node::Or(all) => match all.first() {
                    Some(first) => node = first,
                    None => return "",
                },
            }
        }
    }
}

impl Node {
    fn holds(&self, value: &dyn Fn(&str) -> Option<f64>) -> bool {
        match self {
            Node::Compare(name, how, limit) => value(name).is_some_and(|v| how.holds(v, *limit)),
            Node::Has(name) => value(name).is_some(),
            Node::Not(inner) => !inner.holds(value),
            Node::And(all) => all.iter().all(|n| n.holds(value)),
            Node::Or(all) => all.iter().any(|n| n.holds(value)),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    Quoted(String),
    Compare(Comparison),
    Open,
    Close,
    Comma,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Name(text) | Token::Quoted(text) => write!(f, "{text:?}"),
            Token::Compare(how) => f.write_str(match how {
                Comparison::Less => "<",
                Comparison::LessOrEqual => "<=",
                Comparison::Greater => ">",
                Comparison::GreaterOrEqual => ">=",
                Comparison::Equal => "=",
                Comparison::NotEqual => "!=",
            }),
            Token::Open => f.write_str("("),
            Token::Close => f.write_str(")"),
            Token::Comma => f.write_str(","),
        }
    }
}

type Placed = (usize, Token);

fn unexpected(at: usize, wanted: &'static str, found: &Token) -> ExpressionError {
    ExpressionError::Unexpected { at, wanted, found: found.to_string() }
}

fn is_of_name(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !"<>=!(),\"&|".contains(c)
}

fn tokens(text: &str) -> Result<Vec<Placed>, ExpressionError> {
    let (mut out, mut place) = (Vec::new(), 0);
    let mut letters = text.char_indices().peekable();
    while let Some((from, c)) = letters.next() {
        place += 1;
        let at = place;
        let mut follows = |wanted: char, letters: &mut Peekable<CharIndices<'_>>| {
            let is_there = letters.next_if(|(_, next)| *next == wanted).is_some();
            place += usize::from(is_there);
            is_there
        };
        let token = match c {
            c if c.is_whitespace() => continue,
            '(' => Token::Open,
            ')' => Token::Close,
            ',' => Token::Comma,
            '<' if follows('=', &mut letters) => Token::Compare(Comparison::LessOrEqual),
            '<' => Token::Compare(Comparison::Less),
            '>' if follows('=', &mut letters) => Token::Compare(Comparison::GreaterOrEqual),
            '>' => Token::Compare(Comparison::Greater),
            '=' => {
                follows('=', &mut letters);
                Token::Compare(Comparison::Equal)
            }
            '!' if follows('=', &mut letters) => Token::Compare(Comparison::NotEqual),
            '"' => {
                let rest = text[from + 1..].split_once('"').ok_or(ExpressionError::OpenQuote { at })?.0;
                for _ in 0..=rest.chars().count() {
                    place += usize::from(letters.next().is_some());
                }
                Token::Quoted(rest.to_owned())
            }
            c if is_of_name(c) => {
                let rest = text[from..].split(|c: char| !is_of_name(c)).next().unwrap_or_default();
                for _ in 1..rest.chars().count() {
                    place += usize::from(letters.next().is_some());
                }
                Token::Name(rest.to_owned())
            }
            c => {
                let found = format!("{c:?}");
                return Err(ExpressionError::Unexpected { at, wanted: "a metric or a comparison", found });
            }
        };
        out.push((at, token));
    }
    Ok(out)
}

struct Parser {
    tokens: Peekable<std::vec::IntoIter<Placed>>,
    /// The place behind the last character.
    end: usize,
}

impl Parser {
    fn word(&mut self, word: &str) -> bool {
        let is_it = |(_, t): &Placed| matches!(t, Token::Name(name) if name.eq_ignore_ascii_case(word));
        self.tokens.next_if(is_it).is_some()
    }

    fn next(&mut self, wanted: &'static str) -> Result<Placed, ExpressionError> {
        let end = || ExpressionError::Unexpected { at: self.end, wanted, found: "the end".to_owned() };
        self.tokens.next().ok_or_else(end)
    }

    fn close(&mut self) -> Result<(), ExpressionError> {
        const WANTED: &str = "a closing parenthesis";
        match self.next(WANTED)? {
            (_, Token::Close) => Ok(()),
            (at, found) => Err(unexpected(at, WANTED, &found)),
        }
    }

    fn either(&mut self, depth: usize) -> Result<Node, ExpressionError> {
        let mut all = vec![self.both(depth)?];
        while self.word("or") {
            all.push(self.both(depth)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Node::Or(all) })
    }

    fn both(&mut self, depth: usize) -> Result<Node, ExpressionError> {
        let mut all = vec![self.one(depth)?];
        while self.word("and") || self.tokens.next_if(|(_, t)| *t == Token::Comma).is_some() {
            all.push(self.one(depth)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Node::And(all) })
    }

    fn one(&mut self, depth: usize) -> Result<Node, ExpressionError> {
        if depth > DEEPEST {
            return Err(ExpressionError::TooDeep);
        }
        if self.word("not") {
            return Ok(Node::Not(Box::new(self.one(depth + 1)?)));
        }
        let name = match self.next("a metric's name")? {
            (_, Token::Open) => {
                let inner = self.either(depth + 1)?;
                return self.close().map(|()| inner);
            }
            (_, Token::Name(name)) => {
                let is_call = name.eq_ignore_ascii_case("has") && matches!(self.tokens.peek(), Some((_, Token::Open)));
                if is_call {
                    self.tokens.next();
                    return self.has();
                }
                name
            }
            (_, Token::Quoted(name)) => name,
            (at, found) => return Err(unexpected(at, "a metric's name", &found)),
        };
        const WANTED: &str = "one of < <= > >= = !=";
        let how = match self.next(WANTED)? {
            (_, Token::Compare(how)) => how,
            (at, found) => return Err(unexpected(at, WANTED, &found)),
        };
        match self.next("a number")? {
            (at, Token::Name(text)) => match text.parse() {
                Ok(limit) => Ok(Node::Compare(name, how, limit)),
                Err(_) => Err(unexpected(at, "a number", &Token::Name(text))),
            },
            (at, found) => Err(unexpected(at, "a number", &found)),
        }
    }

    fn has(&mut self) -> Result<Node, ExpressionError> {
        match self.next("a metric's name")? {
            (_, Token::Name(name) | Token::Quoted(name)) => self.close().map(|()| Node::Has(name)),
            (at, found) => Err(unexpected(at, "a metric's name", &found)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str) -> bool {
        let value = |name: &str| match name {
            "loss" => Some(1.5),
            "eval/acc-top1" => Some(0.9),
            "a b" => Some(f64::NAN),
            "step" => Some(100.0),
            _ => None,
        };
        Expression::parse(text).expect("an expression").holds(&value)
    }

    #[test]
    fn comparisons_and_words() {
        for text in [
            "loss<2",
            "loss <= 1.5",
            "loss>1e0",
            "loss == 1.5",
            "loss!=2",
            "eval/acc-top1>=.9",
            "step=100",
            "has(loss)",
            "not has(other)",
            "not other > 0",
            "\"a b\" = nan",
            "\"a b\" != 1",
            "loss<1 or step>99",
            "loss>-inf, step<101",
            "loss<2 AND NOT (step<5 or other<5)",
            "loss > 9 and other > 1 or step > 1",
        ] {
            assert!(holds(text), "{text}");
        }
        for text in ["loss<1", "other<9", "other!=1", "\"a b\"<1", "not loss<2", "loss<2 and step<5", "has(a)"] {
            assert!(!holds(text), "{text}");
        }
        assert_eq!(Expression::parse("not (acc > 1) and b < 2").expect("parse").first_name(), "acc");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let say = |text: &str| Expression::parse(text).expect_err(text).to_string();
        assert_eq!(say(""), "the expression is empty");
        assert_eq!(say("loss"), "at character 5: one of < <= > >= = != is wanted, not the end");
        assert_eq!(say("loss < x"), "at character 8: a number is wanted, not \"x\"");
        assert_eq!(say("é < 1 loss"), "at character 7: `and`, `or` or the end is wanted, not \"loss\"");
        assert_eq!(say("(loss<1"), "at character 8: a closing parenthesis is wanted, not the end");
        assert_eq!(say("a < 1 & b < 2"), "at character 7: a metric or a comparison is wanted, not '&'");
        assert_eq!(say("\"a < 1"), "at character 1: the quoted name has no end");
        assert_eq!(say("< 1"), "at character 1: a metric's name is wanted, not <");
        assert_eq!(Expression::parse(&"(".repeat(100)), Err(ExpressionError::TooDeep));
        assert_eq!(Expression::parse(&"not ".repeat(100)), Err(ExpressionError::TooDeep));
        assert_eq!(Expression::parse(&"a".repeat(5000)), Err(ExpressionError::TooLong));
    }
}
