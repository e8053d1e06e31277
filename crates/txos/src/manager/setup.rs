//! What an attempt needs: its view, its filter, its capture.

use std::path::PathBuf;

use anyhow::{Context, Result};
use txos_capture::{CaptureSpec, IdMap, ORIGIN_MARK};
use txos_effects::{OnUnsupported, Policy};
use txos_host::Tree;
use txos_view::{Credentials, Layer, ViewSpec, plan_layers};

use super::{services, transaction::Transaction};
use crate::{inherited, state};

impl Transaction {
    /// The view of the next attempt, with fresh layers.
    pub(super) fn view(&mut self) -> Result<ViewSpec> {
        let mut wanted = state::likely_places();
        wanted.extend(self.options.trees.iter().cloned());
        wanted.extend(state::named_places(&self.options.command));
        let tree = Tree::open("/")?;
        let credentials = self.credentials;
        let state = self.state.path().to_owned();
        let dir = self.dir();
        // One for all transactions: what is mounted there shows in its own mount namespace alone.
        let scaffold = state.join("view");
        make_dir_if_absent(&scaffold)?;
        let requests = dir.path().join("requests");
        std::fs::write(&requests, [])
            .with_context(|| format!("cannot make {}", requests.display()))?;
        let mut layers = Vec::new();
        for planned in plan_layers(credentials, &wanted)? {
            let mut layer: Layer = planned.layer;
            if planned.writable {
                let made = dir.add_layer(&tree, &layer.point)?;
                layer.upper = Some(made.upper.clone());
                layer.work = Some(made.work.clone());
            }
            layers.push(layer);
        }
        dir.save()?;
        let (plants, originals) = match credentials {
            Credentials::Privileged => services::plan(),
            // An ordinary user controls no services.
            Credentials::User { .. } => Default::default(),
        };
        let allows = self.options.on_unsupported == OnUnsupported::Allow;
        Ok(ViewSpec {
            credentials: self.credentials,
            scaffold,
            layers,
            trees: self.options.trees.clone(),
            live: self.options.live.clone(),
            logs: self.options.exempt_logs.clone(),
            private_network: !self.options.allow_net || self.options.record,
            gateway: self.options.record
                || !self.options.allow_hosts.is_empty()
                || (allows && !self.options.allow_net),
            acts_on_machine: allows,
            devices_guarded: self.credentials == Credentials::Privileged,
            groups: Vec::new(),
            program: std::env::current_exe().context("cannot find the txos program")?,
            helpers: plants.iter().map(|plant| plant.helper.clone()).collect(),
            plants,
            originals,
            requests,
            directory: std::env::current_dir()
                .context("the working directory does not exist: change to another")?,
            terminal: [false; 3],
            signals: inherited::signals(),
            pass_fds: Vec::new(),
            command: self.options.command.clone(),
        })
    }

    /// What the system call filter lets through.
    pub(super) fn policy(&self) -> Policy {
        Policy {
            on_unsupported: self.options.on_unsupported,
            allow_net: self.options.allow_net && !self.options.record,
            record: self.options.record,
            allow_hosts: self.options.allow_hosts.clone(),
            hidden_attribute: match self.credentials {
                Credentials::Privileged => None,
                Credentials::User { .. } => Some(ORIGIN_MARK.to_string_lossy().into_owned()),
            },
        }
    }

    /// What is captured, and how.
    pub(super) fn capture(&self) -> CaptureSpec {
        let (uid, gid) = match self.credentials {
            Credentials::Privileged => (None, None),
            Credentials::User { uid, gid } => (Some(uid), Some(gid)),
        };
        CaptureSpec {
            hidden: vec![PathBuf::from(self.state.path())],
            // What is let through is changed by members themselves: it is not the view's.
            relax: [&self.options.relax, &self.options.live, &self.options.exempt_logs]
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
            prefetch: self.prefetch,
            uids: IdMap::only(uid),
            gids: IdMap::only(gid),
            mark_origins: self.credentials != Credentials::Privileged,
            ..CaptureSpec::default()
        }
    }
}

fn make_dir_if_absent(path: &std::path::Path) -> Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot make the directory {}", path.display()))
        }
        _ => Ok(()),
    }
}
