//! The git state in `restore --git-state`, `undo` and `redo`.

use backstitch_store::{Oid, Writer};
use bstr::ByteSlice;

use super::{
    Repo, SEEN, Values,
    put::{Move, plan, repository},
    values::{INDEX, changes},
};
use crate::{
    error::{Code, Error, Result},
    operation::{Operation, git_states},
    record::Checkpoint,
    tree::Root,
    undo::OnConflict,
    workspace::{Rows, Workspace},
};

impl Workspace {
    /// The state recorded in a row, as JSON: HEAD, branch, what is under way, how much is kept. `seen` is false where the
    /// row only carries what the row before it held.
    pub fn git_state(&self, c: &Checkpoint) -> Result<Option<serde_json::Value>> {
        let odb = self.odb()?;
        let Some(state) = Root::read(&odb, &c.tree)?.git else { return Ok(None) };
        let mut view = Values::read(&odb, &state)?.view(&odb);
        view["seen"] = c.record.extra.contains_key(SEEN).into();
        Ok(Some(view))
    }

    /// The present state, in a pack of its own.
    fn git_now(&self, repo: &Repo, rows: &Rows) -> Result<(Oid, Writer)> {
        let writer = self.store()?.writer()?;
        let carried = match rows.newest() {
            Some(c) => Root::read(writer.odb(), &c.tree)?.git,
            None => None,
        };
        let (now, _) = super::write(repo, &self.rules()?, &writer, carried)?;
        Ok((now, writer))
    }

    /// What leads from the present state to that of a row, and the pack that holds the present one.
    ///
    /// # Errors
    /// `git-state` where the row did not look at it.
    pub(crate) fn git_to(
        &self,
        target: &Checkpoint,
        state: Option<Oid>,
        rows: &Rows,
    ) -> Result<(Move, Writer)> {
        let Some(to) = state.filter(|_| target.record.extra.contains_key(SEEN)) else {
            return Err(Error::new(
                Code::GitState,
                format!("checkpoint {} did not record the git state", target.record.id),
            )
            .hint("`backstitch show` tells of each checkpoint whether it did; nothing was changed"));
        };
        let repo = repository(self)?;
        let (now, writer) = self.git_now(&repo, rows)?;
        let m = plan(&repo, writer.odb(), now, to)?;
        Ok((m, writer))
    }

    /// What takes back the change of the git state that an operation made; `None` where it made none.
    ///
    /// # Errors
    /// `conflict` with [`OnConflict::Refuse`], where something of it changed since.
    pub(crate) fn git_back(
        &self,
        op: &Operation,
        rows: &Rows,
        policy: OnConflict,
    ) -> Result<Option<(Move, Writer)>> {
        if !op.record.extra.contains_key(super::CHANGED) {
            return Ok(None);
        }
        let (Some(before), Some(after)) = git_states(&self.odb()?, &op.tree)? else { return Ok(None) };
        let repo = repository(self)?;
        let (now, writer) = self.git_now(&repo, rows)?;
        let odb = writer.odb();
        let done = changes(&Values::read(odb, &before)?, &Values::read(odb, &after)?);
        let present = Values::read(odb, &now)?;
        let other: Vec<String> = (done.iter())
            .filter(|c| {
                present.map.get(&c.name) != c.to.as_ref() && present.map.get(&c.name) != c.from.as_ref()
            })
            .map(|c| c.name.to_str_lossy().into_owned())
            .collect();
        let mut m = plan(&repo, odb, now, before)?;
        // Only what the operation changed goes back.
        m.changes.retain(|c| done.iter().any(|d| d.name == c.name));
        if !done.iter().any(|d| d.name == INDEX) {
            m.warnings.clear();
        }
        if let Some(first) = other.first().filter(|_| policy != OnConflict::Overwrite) {
            let why = format!("{first} of the repository changed since");
            if policy == OnConflict::Refuse {
                return Err(Error::new(Code::Conflict, why).list(other.clone()).hint(
                    "--on-conflict keep leaves the git state alone and does the rest; nothing was changed",
                ));
            }
            m.changes.clear();
            m.warnings.push(format!("the git state was left alone: {why}"));
            m.conflict = Some(why);
        }
        Ok(Some((m, writer)))
    }
}
