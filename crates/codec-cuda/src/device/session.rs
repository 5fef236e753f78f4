//! A session: one stream and the buffers used on it.
//!
//! Buffers go back to the session when they are dropped, and are handed out again without waiting: everything that
//! touches them is on one stream, in order.

use crate::{
    Arg, DeviceError, Kernel, Result,
    device::{Driver, Stream},
};
use std::{cell::RefCell, marker::PhantomData, ops::Range, sync::Arc};

/// Least bytes of an allocation; larger ones are rounded up to an eighth of a power of two.
const LEAST: usize = 4096;

/// A stream and its spare memory: (length, address).
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) driver: Arc<dyn Driver>,
    stream: Stream,
    spare: Vec<(usize, u64)>,
}

impl Lane {
    /// A new stream without memory.
    pub(crate) fn new(driver: Arc<dyn Driver>) -> Result<Lane> {
        let stream = driver.stream()?;
        Ok(Lane { driver, stream, spare: Vec::new() })
    }

    /// Gives the spare memory back to the device.
    pub(crate) fn release(&mut self) {
        if !self.spare.is_empty() && self.driver.wait(self.stream).is_ok() {
            self.spare.drain(..).for_each(|(_, at)| self.driver.free(at));
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.release();
    }
}

/// Work on a lane.
#[derive(Debug)]
pub(crate) struct Session {
    driver: Arc<dyn Driver>,
    stream: Stream,
    lane: RefCell<Lane>,
}

impl Session {
    /// Works on this lane until `end`.
    pub(crate) fn new(lane: Lane) -> Session {
        Session { driver: lane.driver.clone(), stream: lane.stream, lane: RefCell::new(lane) }
    }

    /// Returns the lane for the next session.
    pub(crate) fn end(self) -> Lane {
        self.lane.into_inner()
    }

    /// Memory of unspecified content.
    pub(crate) fn buffer(&self, len: usize) -> Result<Buffer<'_>> {
        let size = rounded(len);
        let mut lane = self.lane.borrow_mut();
        let fits = |&&(have, _): &&(usize, u64)| have >= size && have <= 2 * size;
        let found = lane.spare.iter().filter(fits).min().copied();
        let (size, address) = match found {
            Some(one) => {
                lane.spare.retain(|s| *s != one);
                one
            }
            None => match self.driver.alloc(size) {
                Err(DeviceError::OutOfMemory { .. }) if !lane.spare.is_empty() => {
                    lane.release();
                    (size, self.driver.alloc(size)?)
                }
                other => (size, other?),
            },
        };
        Ok(Buffer { session: self, address, size, len })
    }

    pub(crate) fn zeroed(&self, len: usize) -> Result<Buffer<'_>> {
        let buffer = self.buffer(len)?;
        self.driver.fill(self.stream, buffer.address, len, 0)?;
        Ok(buffer)
    }

    pub(crate) fn upload(&self, bytes: &[u8]) -> Result<Buffer<'_>> {
        let buffer = self.buffer(bytes.len())?;
        self.write(buffer.view(), bytes)?;
        Ok(buffer)
    }

    /// Copies bytes to a place on the device.
    pub(crate) fn write(&self, to: View<'_>, bytes: &[u8]) -> Result<()> {
        if to.len != bytes.len() {
            return Err(DeviceError::Failed("a copy of unlike lengths".to_owned()));
        }
        // No driver is asked to copy nothing: there is no address to copy it from.
        if bytes.is_empty() {
            return Ok(());
        }
        self.driver.upload(self.stream, to.address, bytes)
    }

    /// Copies bytes to another place on the device.
    pub(crate) fn copy(&self, from: View<'_>, to: View<'_>) -> Result<()> {
        if to.len != from.len {
            return Err(DeviceError::Failed("a copy of unlike lengths".to_owned()));
        }
        self.driver.copy(self.stream, from.address, to.address, from.len)
    }

    /// Waits until everything that was started has happened.
    pub(crate) fn wait(&self) -> Result<()> {
        self.driver.wait(self.stream)
    }

    /// Numbers on the device, little-endian.
    pub(crate) fn upload_u32(&self, values: &[u32]) -> Result<Buffer<'_>> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.upload(&bytes)
    }

    /// Structures of 8-byte fields, or pairs of 4-byte ones with the first in the lower half.
    pub(crate) fn upload_u64(&self, values: &[u64]) -> Result<Buffer<'_>> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.upload(&bytes)
    }

    /// A list of structures of 8-byte fields.
    pub(crate) fn upload_list<const N: usize>(&self, list: impl IntoIterator<Item = [u64; N]>) -> Result<Buffer<'_>> {
        let bytes: Vec<u8> = list.into_iter().flatten().flat_map(u64::to_le_bytes).collect();
        self.upload(&bytes)
    }

    /// Waits, and copies bytes from the device.
    pub(crate) fn download(&self, view: View<'_>) -> Result<Vec<u8>> {
        let mut out = vec![0; view.len];
        self.download_into(view, &mut out)?;
        Ok(out)
    }

    /// As [`download`](Self::download), into `out`, which is as long as the view.
    pub(crate) fn download_into(&self, view: View<'_>, out: &mut [u8]) -> Result<()> {
        if view.len != out.len() {
            return Err(DeviceError::Failed("a copy of unlike lengths".to_owned()));
        }
        if out.is_empty() {
            return Ok(());
        }
        self.driver.download(self.stream, view.address, out)
    }

    pub(crate) fn download_u32(&self, view: View<'_>) -> Result<Vec<u32>> {
        let bytes = self.download(view)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect())
    }

    /// Waits, and fails as corrupt unless all numbers are 0: what kernels say of the blocks they decode.
    pub(crate) fn expect_zeros(&self, view: View<'_>, why: &'static str) -> Result<()> {
        match self.download_u32(view)?.iter().all(|&n| n == 0) {
            true => Ok(()),
            false => Err(DeviceError::Corrupt(why)),
        }
    }

    /// Starts a kernel, unless the grid is empty.
    pub(crate) fn launch(&self, kernel: Kernel, grid: (u32, u32), threads: u32, args: &[Arg]) -> Result<()> {
        if grid.0 == 0 || grid.1 == 0 {
            return Ok(());
        }
        self.driver.launch(self.stream, kernel, grid, threads, args)
    }
}

/// Next size that is allocated: few distinct ones, so that buffers are found again.
fn rounded(len: usize) -> usize {
    let len = len.max(LEAST);
    let step = (len.next_power_of_two() / 8).max(LEAST);
    len.next_multiple_of(step)
}

/// Memory of a session.
#[derive(Debug)]
pub(crate) struct Buffer<'s> {
    session: &'s Session,
    address: u64,
    size: usize,
    len: usize,
}

impl Buffer<'_> {
    pub(crate) fn view(&self) -> View<'_> {
        View { address: self.address, len: self.len, life: PhantomData }
    }

    /// Where it begins, for a kernel.
    pub(crate) fn arg(&self) -> Arg {
        Arg::Ptr(self.address)
    }

    /// Where it begins, for a kernel's structure.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        self.session.driver.spoil(self.address, self.size);
        self.session.lane.borrow_mut().spare.push((self.size, self.address));
    }
}

/// Bytes on a device, borrowed from their owner.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View<'a> {
    address: u64,
    len: usize,
    life: PhantomData<&'a ()>,
}

impl<'a> View<'a> {
    /// Bytes that the caller vouches for.
    pub(crate) fn at(address: u64, len: usize) -> View<'a> {
        View { address, len, life: PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where it begins, for a kernel's structure.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Where it begins, for a kernel.
    pub(crate) fn arg(&self) -> Arg {
        Arg::Ptr(self.address)
    }

    /// Some of it; what lies outside is cut off.
    pub(crate) fn part(&self, range: Range<usize>) -> View<'a> {
        let (start, end) = (range.start.min(self.len), range.end.min(self.len));
        View::at(self.address + start as u64, end.saturating_sub(start))
    }
}
