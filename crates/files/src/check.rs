//! Checks a layout's invariants: extents disjoint, in order and inside the file.

use crate::layout::{Extent, Layout, View};
use std::collections::HashSet;

impl View {
    /// Bytes from the view's first element to the end of its last one; 0 for a view without elements, `None` where the
    /// numbers do not fit or `strides` and `shape` differ in length.
    pub fn span(&self) -> Option<u64> {
        self.dtype.span(&self.shape, &self.strides)
    }
}

impl Layout {
    /// Checks what every layout promises about a file of `file_len` bytes: extents sorted by offset, disjoint, inside
    /// the file and of defined length, with unique names; views inside an extent that exists.
    pub fn check(&self, file_len: u64) -> Result<(), String> {
        if u32::try_from(self.extents.len()).is_err() {
            return Err("more extents than a view can point at".into());
        }
        self.check_ranges(file_len)?;
        let mut names = HashSet::with_capacity(self.extents.len());
        if let Some(twice) = self.extents.iter().find(|e| !names.insert(e.name.as_str())) {
            return Err(format!("two extents are named {:?}", short(&twice.name)));
        }
        self.views.iter().try_for_each(|view| self.check_view(view))
    }

    fn check_ranges(&self, file_len: u64) -> Result<(), String> {
        let mut free_from = 0;
        for extent in &self.extents {
            let end = extent.byte_len().and_then(|len| extent.offset.checked_add(len));
            let end = end.ok_or_else(|| format!("the size of {:?} overflows", short(&extent.name)))?;
            if extent.offset < free_from {
                return Err(format!("{:?} overlaps what precedes it", short(&extent.name)));
            }
            if end > file_len {
                return Err(format!("{:?} ends past the end of the file", short(&extent.name)));
            }
            free_from = end;
        }
        Ok(())
    }

    fn check_view(&self, view: &View) -> Result<(), String> {
        let owner = usize::try_from(view.extent).ok().and_then(|i| self.extents.get(i));
        let room = owner
            .and_then(Extent::byte_len)
            .ok_or_else(|| format!("view {:?} belongs to no extent", short(&view.name)))?;
        let end = view.span().and_then(|span| view.offset.checked_add(span));
        match end {
            Some(end) if end <= room => Ok(()),
            _ => Err(format!("view {:?} leaves its extent", short(&view.name))),
        }
    }
}

/// Characters of a name, and of a whole reason, that a message carries.
const LONGEST_NAME: usize = 80;
const LONGEST_REASON: usize = 400;

/// A name cut to what a message can carry.
pub(crate) fn short(name: &str) -> String {
    cut(name, LONGEST_NAME)
}

/// A reason cut to what a message can carry: a parser's error may quote a text of the file, however long.
pub(crate) fn short_reason(reason: &str) -> String {
    cut(reason, LONGEST_REASON)
}

fn cut(text: &str, most: usize) -> String {
    let mut cut: String = text.chars().take(most).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    cut
}
