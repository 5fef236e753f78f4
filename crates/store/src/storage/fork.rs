//! Fork safety: open files are closed in a forked child before it does anything else, and no thread of this process
//! forks inside certain sections.

use std::{
    cell::UnsafeCell,
    fs::{File, OpenOptions},
    io,
    mem::ManuallyDrop,
    os::fd::{AsRawFd, RawFd},
    path::Path,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// The files, under a lock that can be taken before a fork and released on both sides of it, by calls that allow that.
struct OpenFiles {
    taken: AtomicBool,
    files: UnsafeCell<Vec<RawFd>>,
}

// SAFETY: `files` is only reached by what has swapped `taken` from false to true, until it stores false.
unsafe impl Sync for OpenFiles {}

static OPEN: OpenFiles = OpenFiles { taken: AtomicBool::new(false), files: UnsafeCell::new(Vec::new()) };

impl OpenFiles {
    fn take(&self) {
        // Held for the time of an open, a close or a short section.
        while self.taken.swap(true, Ordering::Acquire) {
            thread::yield_now();
        }
    }

    fn release(&self) {
        self.taken.store(false, Ordering::Release);
    }

    fn with<T>(&self, f: impl FnOnce(&mut Vec<RawFd>) -> T) -> T {
        struct Taken<'a>(&'a OpenFiles);
        impl Drop for Taken<'_> {
            fn drop(&mut self) {
                self.0.release();
            }
        }
        self.take();
        let taken = Taken(self);
        // SAFETY: taken until `taken` goes, also by a panic; `f` is not given a way to take it again.
        f(unsafe { &mut *taken.0.files.get() })
    }
}

extern "C" fn before() {
    OPEN.take();
}

extern "C" fn in_parent() {
    OPEN.release();
}

extern "C" fn in_child() {
    // SAFETY: `before` has taken it, in the one thread that this process has; closing and truncating allocate nothing.
    let files = unsafe { &mut *OPEN.files.get() };
    for fd in files.iter() {
        // SAFETY: the child's own number of a file that nothing in it uses: `OwnFile` looks which process opened it.
        unsafe { libc::close(*fd) };
    }
    files.clear();
    OPEN.release();
}

/// Has the C library run the handlers at each fork. To be called before another thread may need them.
pub(super) fn install() {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        // SAFETY: the handlers are functions for as long as the program runs. Without memory for them children keep
        // the files.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

/// Runs `f` while no thread forks: a lock of the whole process that another thread has at a fork stays locked in the
/// child for ever. `f` is short, neither forks nor calls this again, and needs no lock that a forking thread may have.
pub fn without_forks<T>(f: impl FnOnce() -> T) -> T {
    install();
    OPEN.with(|_| f())
}

/// Opens a file that children close.
pub(super) fn open(options: &OpenOptions, path: &Path) -> io::Result<File> {
    install();
    OPEN.with(|files| {
        let file = options.open(path)?;
        files.push(file.as_raw_fd());
        Ok(file)
    })
}

/// Closes one; it must not be used afterwards.
pub(super) fn close(file: &mut ManuallyDrop<File>) {
    OPEN.with(|files| {
        let fd = file.as_raw_fd();
        if let Some(at) = files.iter().position(|f| *f == fd) {
            files.swap_remove(at);
        }
        // SAFETY: the caller does not use it again.
        unsafe { ManuallyDrop::drop(file) };
    });
}
