//! The introductions of agents to clients, and the processes that were started for them.

use std::sync::{Arc, Mutex};

use duologue_rpc::Lock as _;
use duologue_schema::{AuthenticateRequest, InitializeResponse, LogoutRequest, Request as _};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::abilities::AdvertisedAbilities;
use crate::asking_client::AskingClient;
use crate::error::Error;
use crate::hosted_agent::HostedAgent;
use crate::hub::settings::AgentLaunch;
use crate::hub::{HubSettings, HubShared};

/// The login that is repeated in each new process, because some agents keep it in memory.
#[derive(Debug, Default)]
pub(super) struct Login {
    /// The params of the last one, unless a logout followed it.
    params: Option<Box<RawValue>>,
    /// The number of logins and logouts so far.
    number: u64,
}

/// The introductions of processes, and a process that no session uses yet.
#[derive(Debug, Default)]
pub(super) struct Introductions {
    spare: tokio::sync::Mutex<Spare>,
    /// The last introduction for each set of schemes that was advertised.
    known: Mutex<Vec<(AdvertisedAbilities, InitializeResponse)>>,
}

#[derive(Debug, Default)]
struct Spare {
    agent: Option<SpareAgent>,
    /// The last failure to start one. All who waited for that process fail with it.
    failed: Option<(Instant, Arc<Error>)>,
}

/// A process for the next session.
#[derive(Debug)]
struct SpareAgent {
    agent: HostedAgent,
    introduction: InitializeResponse,
    since: Instant,
}

impl Introductions {
    fn known(&self, schemes: AdvertisedAbilities) -> Option<InitializeResponse> {
        let known = self.known.lock_unpoisoned();
        known.iter().find(|(of, _)| *of == schemes).map(|(_, introduction)| introduction.clone())
    }

    fn learn(&self, schemes: AdvertisedAbilities, introduction: &InitializeResponse) {
        let mut known = self.known.lock_unpoisoned();
        known.retain(|(of, _)| *of != schemes);
        known.push((schemes, introduction.clone()));
    }
}

impl HubShared {
    /// Returns a process to which the hub is introduced: the spare one, or a new one.
    pub(crate) async fn start_agent(
        &self,
        schemes: AdvertisedAbilities,
    ) -> Result<(HostedAgent, InitializeResponse), Error> {
        self.settings.agent.require_reachable()?;
        let schemes = self.advertised(schemes);
        // The lock is taken while a process is started for another client.
        let spare = self.introductions.spare.try_lock().ok();
        let mut spare =
            spare.and_then(|mut spare| spare.agent.take_if(|spare| spare.agent.schemes == schemes));
        // A client can log in while a process is started for another one.
        let login = self.login.lock_unpoisoned().number;
        let is_usable = |spare: &mut SpareAgent| spare.agent.login == login && spare.agent.is_running();
        let (mut agent, introduction) = match spare.take_if(is_usable) {
            Some(spare) => (spare.agent, spare.introduction),
            None => self.start_new_agent(schemes).await?,
        };
        agent.renamed = self.announced_id.renamed(&introduction);
        Ok((agent, introduction))
    }

    /// Returns the introduction of an agent for a client. A process is started if none with these schemes was introduced
    /// before, and kept for the next session.
    pub(crate) async fn introduction(
        self: &Arc<Self>,
        schemes: AdvertisedAbilities,
    ) -> Result<InitializeResponse, Error> {
        let mut introduction = self.any_introduction(schemes).await?;
        self.announced_id.announce(&mut introduction);
        Ok(introduction)
    }

    /// Passes a request that belongs to no session to an agent, such as a login. A user may take any time for it, and
    /// `cancelled` is notified if the client cancels it.
    pub(crate) async fn request_of_no_session(
        self: &Arc<Self>,
        method: &str,
        params: Option<&RawValue>,
        client: &AskingClient,
        cancelled: &Notify,
    ) -> Result<Box<RawValue>, Error> {
        let limit = self.settings.requests_without_session;
        let _place = self.without_session.try_acquire().map_err(|_| Error::Requests { limit })?;
        let (mut agent, introduction) = self.start_agent(client.abilities.schemes()).await?;
        let result = agent.request_of_user(method, &params, Some(client), cancelled).await?;
        agent.drop_early();
        if matches!(method, AuthenticateRequest::METHOD | LogoutRequest::METHOD) {
            let mut login = self.login.lock_unpoisoned();
            login.number += 1;
            agent.login = login.number;
            login.params = params.filter(|_| method == AuthenticateRequest::METHOD).map(RawValue::to_owned);
        }
        if let Ok(mut spare) = self.introductions.spare.try_lock() {
            self.keep(&mut spare, agent, introduction);
        }
        Ok(result)
    }

    async fn any_introduction(
        self: &Arc<Self>,
        schemes: AdvertisedAbilities,
    ) -> Result<InitializeResponse, Error> {
        let (requested, schemes) = (Instant::now(), self.advertised(schemes));
        if *self.closing.borrow() {
            return Err(Error::Closed);
        }
        // The connection to an agent elsewhere is opened again.
        let known = || match self.settings.agent.is_shared() {
            true => None,
            false => self.introductions.known(schemes),
        };
        if let Some(introduction) = known() {
            return Ok(introduction);
        }
        let mut spare = self.introductions.spare.lock().await;
        if let Some(introduction) = known() {
            return Ok(introduction);
        }
        if let Some(spare) = &mut spare.agent
            && spare.agent.schemes == schemes
            && spare.agent.is_running()
        {
            return Ok(spare.introduction.clone());
        }
        if let Some((at, error)) = &spare.failed
            && *at >= requested
        {
            return Err(Error::Introduction(error.clone()));
        }
        match self.start_new_agent(schemes).await {
            Ok((agent, introduction)) => {
                self.keep(&mut spare, agent, introduction.clone());
                Ok(introduction)
            }
            Err(error) => {
                let error = Arc::new(error);
                spare.failed = Some((Instant::now(), error.clone()));
                Err(Error::Introduction(error))
            }
        }
    }

    /// Keeps a process for the next session, and ends it if none comes in time.
    fn keep(self: &Arc<Self>, spare: &mut Spare, agent: HostedAgent, introduction: InitializeResponse) {
        let (since, limit) = (Instant::now(), self.settings.spare_process);
        spare.agent = Some(SpareAgent { agent, introduction, since });
        // A shared process goes on without its lanes.
        if self.settings.owner.is_process_shared {
            return;
        }
        let (hub, mut closing) = (Arc::downgrade(self), self.closing.subscribe());
        tokio::spawn(async move {
            tokio::select! {
                () = sleep(limit) => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
            let Some(hub) = hub.upgrade() else { return };
            let unused = hub.introductions.spare.lock().await.agent.take_if(|spare| spare.since == since);
            if let Some(unused) = unused {
                unused.agent.end().await;
            }
        });
    }

    async fn start_new_agent(
        &self,
        schemes: AdvertisedAbilities,
    ) -> Result<(HostedAgent, InitializeResponse), Error> {
        let started = match self.settings.owner.is_process_shared {
            false => self.start_process(schemes).await?,
            true => {
                let start = self.start_process(AdvertisedAbilities::ALL);
                self.shared_agent.lane(schemes, self.settings.agent_timeout, start).await?
            }
        };
        self.introductions.learn(schemes, &started.1);
        Ok(started)
    }

    async fn start_process(
        &self,
        schemes: AdvertisedAbilities,
    ) -> Result<(HostedAgent, InitializeResponse), Error> {
        let closing = self.closing.subscribe();
        if *closing.borrow() {
            return Err(Error::Closed);
        }
        let HubSettings { agent, agent_timeout, processes, .. } = &self.settings;
        let mut agent = match &agent.0 {
            AgentLaunch::Command(command) => {
                HostedAgent::start(command(), *agent_timeout, processes.clone(), closing)?
            }
            #[cfg(feature = "gateway")]
            AgentLaunch::Remote(remote) => remote.start(*agent_timeout, closing).await?,
        };
        let introduction = agent.initialize(self.settings.client_files, schemes).await?;
        let login = {
            let login = self.login.lock_unpoisoned();
            agent.login = login.number;
            login.params.clone()
        };
        if let Some(login) = login {
            match agent.request(AuthenticateRequest::METHOD, &login, None).await {
                // The agent says so again when a session needs the login.
                Err(Error::Agent { error, .. }) => tracing::warn!(%error, "a login was not repeated"),
                repeated => _ = repeated?,
            }
        }
        Ok((agent, introduction))
    }

    /// Returns the schemes that are advertised to an agent, for clients with these schemes.
    fn advertised(&self, schemes: AdvertisedAbilities) -> AdvertisedAbilities {
        let routes = self.settings.owner.routes_calls;
        let (envelopes, dialogues) = (schemes.envelopes || routes, schemes.dialogues || routes);
        AdvertisedAbilities { envelopes, dialogues, ..schemes }
    }
}
