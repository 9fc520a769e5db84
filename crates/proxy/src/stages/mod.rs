//! The built-in stages.

mod path_map;
mod permissions;
mod record;
mod redact;
mod system_prompt;

pub use path_map::PathMap;
pub use permissions::{PermissionPolicy, PermissionRule};
pub use record::RecordStage;
pub use redact::RedactStage;
pub use system_prompt::SystemPromptStage;
