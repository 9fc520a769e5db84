//! The agents of the example: one that paints, and one that does something else.

use duologue_agent::exchange::envelope::{
    AgentCapability, Attachment, Capabilities, DelegationOutcome, EnvelopeError, EnvelopeErrorCode,
    EnvelopeHandler, OutcomeStatus, ReceivedTask,
};

/// The largest picture that is painted, in pixels of a side.
const LARGEST: u32 = 1_000;

pub(crate) struct Painter;

impl EnvelopeHandler for Painter {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("Painter")
            .domains(["art.pictures".to_owned()])
            .capabilities([AgentCapability::from("paint")])
            .mime_types(["image/x-portable-pixmap".to_owned()])
            .version("1.0")
            .max_concurrent_tasks(1)
    }

    async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        let side = |name| task.context.get::<u32>(name).unwrap_or(16);
        let (width, height) = (side("width"), side("height"));
        if width > LARGEST || height > LARGEST {
            let message = format!("a picture has at most {LARGEST} pixels a side");
            return Err(EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, message));
        }
        let mut image = format!("P6 {width} {height} 255\n").into_bytes();
        for row in 0..height {
            let light = u8::try_from(255 - row * 255 / height).unwrap_or(0);
            (0..width).for_each(|_| image.extend([255, light, 64]));
            let line = task.output(format!("row {} of {height}", row + 1));
            if row + 1 == height { line.last() } else { line }.await?;
        }
        let image = Attachment::with_bytes("image/x-portable-pixmap", image).name("sunset.ppm");
        Ok(DelegationOutcome::new(OutcomeStatus::Completed)
            .outcome(format!("Done: {}", task.task))
            .attachments([image]))
    }
}

pub(crate) struct Calendar;

impl EnvelopeHandler for Calendar {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("Calendar").domains(["family.calendar".to_owned()])
    }
}
