//! The opcodes of pickle protocols 0 to 5.

use super::{
    Lost,
    machine::Machine,
    values::{Bag, Node, Span, Value},
};

/// Carries out one opcode other than STOP.
pub(super) fn step(m: &mut Machine<'_>, op: u8) -> Result<(), Lost> {
    match op {
        b'(' => {
            m.mark();
            Ok(())
        }
        b'0' => m.drop_top(),
        b'1' => m.since_mark().map(drop),
        b'2' => m.top().and_then(|top| m.push(top)),
        b'a' | b'e' | 0x90 | b's' | b'u' | b'b' => fill(m, op),
        b'g' | b'h' | b'j' | b'p' | b'q' | b'r' | 0x94 => memo(m, op),
        b'c' | b'i' | b'o' | b'P' | b'Q' | b'R' | 0x81 | 0x92 | 0x93 => object(m, op),
        b')' | b't' | b'l' | b'd' | b']' | b'}' | 0x85..=0x87 | 0x8f | 0x91 => container(m, op),
        0x80 => m.array::<1>().map(drop),
        0x95 => m.array::<8>().map(drop),
        _ => scalar(m, op),
    }
}

/// Opcodes that put something into what lies below on the stack, and leave that there.
fn fill(m: &mut Machine<'_>, op: u8) -> Result<(), Lost> {
    let parts = match op {
        b'a' | b'b' => vec![m.pop()?],
        b's' => {
            let value = m.pop()?;
            vec![m.pop()?, value]
        }
        _ => m.since_mark()?,
    };
    let target = m.top()?;
    match op {
        b's' | b'u' => m.update(target, &parts),
        b'b' => m.build(target, parts.first().copied().unwrap_or(Value::Atom)),
        _ => m.extend(target, &parts),
    }
}

fn memo(m: &mut Machine<'_>, op: u8) -> Result<(), Lost> {
    let key = match op {
        b'g' | b'p' => match decimal(m)? {
            Value::Int(key) => u64::try_from(key).map_err(|_| Lost("has a negative memo key"))?,
            _ => return Err(Lost("has a memo key that is no number")),
        },
        b'h' | b'q' => u64::from(m.array::<1>().map(u8::from_le_bytes)?),
        b'j' | b'r' => u64::from(m.array().map(u32::from_le_bytes)?),
        _ => return m.memoize(),
    };
    if matches!(op, b'g' | b'h' | b'j') { m.get(key) } else { m.put(key) }
}

/// Opcodes that name or make an object.
fn object(m: &mut Machine<'_>, op: u8) -> Result<(), Lost> {
    match op {
        b'c' => {
            let (module, name) = (m.line()?, m.line()?);
            m.push_node(Node::Global(module, name))
        }
        0x93 => match (m.pop()?, m.pop()?) {
            (Value::Text(name), Value::Text(module)) => m.push_node(Node::Global(module, name)),
            _ => Err(Lost("names a global by what is no text")),
        },
        b'P' => {
            m.line()?;
            m.push_node(Node::Persistent(Value::Atom))
        }
        b'Q' => {
            let id = m.pop()?;
            m.push_node(Node::Persistent(id))
        }
        b'i' => {
            let (module, name) = (m.line()?, m.line()?);
            let args = m.since_mark()?;
            m.push_node(Node::Global(module, name))?;
            made(m, args)
        }
        b'o' => {
            let mut args = m.since_mark()?;
            if args.is_empty() {
                return Err(Lost("makes an object of no class"));
            }
            let class = args.remove(0);
            m.push(class)?;
            made(m, args)
        }
        0x92 => {
            // NEWOBJ_EX: the keyword arguments ride along as the object's first state.
            let (keywords, args, class) = (m.pop()?, m.pop()?, m.pop()?);
            m.push_made(class, args)?;
            let object = m.top()?;
            m.build(object, keywords)
        }
        _ => {
            let (args, callable) = (m.pop()?, m.pop()?);
            m.push_made(callable, args)
        }
    }
}

/// Makes an object of the class on top of the stack.
fn made(m: &mut Machine<'_>, args: Vec<Value>) -> Result<(), Lost> {
    m.push_tuple(args)?;
    let (args, class) = (m.pop()?, m.pop()?);
    m.push_made(class, args)
}

fn container(m: &mut Machine<'_>, op: u8) -> Result<(), Lost> {
    match op {
        b')' => m.push_tuple(Vec::new()),
        b't' => m.since_mark().and_then(|parts| m.push_tuple(parts)),
        0x85..=0x87 => {
            let mut parts = Vec::with_capacity(3);
            for _ in 0x85..=op {
                parts.push(m.pop()?);
            }
            parts.reverse();
            m.push_tuple(parts)
        }
        b'l' | b'd' | 0x91 => {
            let parts = m.since_mark()?;
            m.push_node(Node::Bag(Box::default()))?;
            let target = m.top()?;
            if op == b'd' { m.update(target, &parts) } else { m.extend(target, &parts) }
        }
        _ => m.push_node(Node::Bag(Box::<Bag>::default())),
    }
}

/// Opcodes that push a value without parts.
fn scalar(m: &mut Machine<'_>, op: u8) -> Result<(), Lost> {
    let value = match op {
        b'N' => Value::Atom,
        0x88 | 0x89 => Value::Bool(op == 0x88),
        b'K' => Value::Int(m.array().map(u8::from_le_bytes)?.into()),
        b'M' => Value::Int(m.array().map(u16::from_le_bytes)?.into()),
        b'J' => Value::Int(m.array().map(i32::from_le_bytes)?.into()),
        b'I' | b'L' => decimal(m)?,
        0x8a | 0x8b => long(m, op)?,
        b'F' => m.line().map(|_| Value::Atom)?,
        b'G' => m.array::<8>().map(|_| Value::Atom)?,
        b'S' | b'V' => m.line().map(Value::Text)?,
        b'U' | 0x8c | b'T' | b'X' | 0x8d => counted(m, op).map(Value::Text)?,
        b'C' | b'B' | 0x8e | 0x96 => counted(m, op).map(|_| Value::Atom)?,
        _ => return Err(Lost("has an opcode we do not know")),
    };
    m.push(value)
}

/// A number on a line of its own: `12`, `12L`; booleans are `00` and `01`.
fn decimal(m: &mut Machine<'_>) -> Result<Value, Lost> {
    let span = m.line()?;
    let digits = m.slice(span);
    if let b"00" | b"01" = digits {
        return Ok(Value::Bool(digits == b"01"));
    }
    let digits = digits.strip_suffix(b"L").unwrap_or(digits);
    let text = std::str::from_utf8(digits).map_err(|_| Lost("has a number that is none"))?;
    Ok(text.trim().parse().map_or(Value::Atom, Value::Int))
}

/// Bytes behind their number, which has one, four or eight bytes.
fn counted(m: &mut Machine<'_>, op: u8) -> Result<Span, Lost> {
    let len = match op {
        b'U' | b'C' | 0x8a | 0x8c => m.array().map(u8::from_le_bytes)?.into(),
        b'T' | b'X' | b'B' | 0x8b => m.array().map(u32::from_le_bytes)?.into(),
        _ => m.array().map(u64::from_le_bytes)?,
    };
    m.span(len)
}

/// A little-endian two's complement number behind its length.
fn long(m: &mut Machine<'_>, op: u8) -> Result<Value, Lost> {
    let span = counted(m, op)?;
    let bytes = m.slice(span);
    if bytes.len() > 8 {
        return Ok(Value::Atom);
    }
    let fill = if bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
    let mut wide = [fill; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    Ok(Value::Int(i64::from_le_bytes(wide)))
}
