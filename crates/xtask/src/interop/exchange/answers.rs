//! What our end answers: the same as `interop/ts/exchange.mjs`.

use super::{dialogue, work};
use crate::interop::Result;
use duologue_agent::exchange::Exchange;
use duologue_agent::exchange::envelope::{
    Capabilities, Correspondent, Fault, FaultCode, Query, Received, Response,
};
use duologue_schema::Json;

/// Our end of the exchange.
pub(super) fn exchange() -> Result<Exchange> {
    Ok(Exchange::new().correspondent(Answers).dialogue(dialogue::dialogues()?).work(work::work))
}

struct Answers;

impl Correspondent for Answers {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("duologue")
            .domains(vec!["family.calendar".to_owned()])
            .channels(vec!["work.build".to_owned()])
            .tools(vec!["clock".to_owned()])
            .max_concurrent_tasks(2_u32)
            .model("none")
    }

    async fn query(&self, query: Received<Query>) -> Result<Response, Fault> {
        match query.question.as_str() {
            "fault" => Err(Fault::of(FaultCode::UnknownDomain, "nobody knows")),
            "ask back" => {
                let answer = query.peer.query("echo").await.map_err(|error| error.fault())?;
                Ok(Response::new(answer.summary))
            }
            // As it came, with what we do not know.
            _ => Ok(Response::new(super::tour::HEARD).data(
                Json::new(&query.envelope.payload).map_err(|error| Fault::internal(error.to_string()))?,
            )),
        }
    }
}
