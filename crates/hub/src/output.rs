//! The output of a client: lines that wait for one writer, with a limit on their bytes.

use std::sync::Arc;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

/// Limit on the bytes that wait for a client. Its readers wait above it. A longer line waits alone.
const WAITING_BYTES: u32 = 4 << 20;
/// The bytes that are written at once, if as many wait.
const WRITE_BYTES: usize = 64 << 10;

type Waiting = (Vec<u8>, OwnedSemaphorePermit);

/// A sender of lines.
#[derive(Clone, Debug)]
pub(crate) struct ClientOutput {
    lines: mpsc::UnboundedSender<Waiting>,
    room: Arc<Semaphore>,
}

impl ClientOutput {
    /// Sends a line without its line end, and waits for space before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits sends nothing.
    pub(crate) async fn send(&self, line: Vec<u8>) {
        let bytes = u32::try_from(line.len()).unwrap_or(u32::MAX).clamp(1, WAITING_BYTES);
        if let Ok(permit) = self.room.clone().acquire_many_owned(bytes).await {
            let _ = self.lines.send((line, permit));
        }
    }
}

/// The task that writes.
#[derive(Debug)]
pub(crate) struct OutputWriter(JoinHandle<()>);

impl OutputWriter {
    /// Starts the writer.
    pub(crate) fn start(writer: impl AsyncWrite + Send + Unpin + 'static) -> (ClientOutput, Self) {
        let (lines, waiting) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(WAITING_BYTES as usize));
        let task = tokio::spawn(write(writer, waiting, room.clone()));
        (ClientOutput { lines, room }, OutputWriter(task))
    }

    /// Waits until everything is written. All senders must have been dropped.
    pub(crate) async fn finish(self) {
        let _ = self.0.await;
    }
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut waiting: mpsc::UnboundedReceiver<Waiting>,
    room: Arc<Semaphore>,
) {
    let mut buffer = Vec::new();
    while let Some((line, permit)) = waiting.recv().await {
        let mut permits = vec![permit];
        buffer.clear();
        buffer.extend_from_slice(&line);
        buffer.push(b'\n');
        while buffer.len() < WRITE_BYTES
            && let Ok((line, permit)) = waiting.try_recv()
        {
            buffer.extend_from_slice(&line);
            buffer.push(b'\n');
            permits.push(permit);
        }
        if writer.write_all(&buffer).await.is_err() || writer.flush().await.is_err() {
            // Senders do not wait for a client that is gone.
            room.close();
            return;
        }
    }
}
