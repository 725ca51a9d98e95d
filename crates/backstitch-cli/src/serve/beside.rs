//! What runs beside the lane of its workspace: the capture of a turn that takes long, and tools that wait for it. A tool that names
//! its paths waits for nothing but its place in the lane; everything else that writes waits for the capture's end.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
    mpsc,
};

use backstitch::turn::Begun;

use super::{
    call,
    calls::crowded,
    lanes::Lane,
    message::Reply,
    server::{Place, Server, held},
    turns,
};
use crate::{
    command::turn,
    table::{self, Command},
};

impl Server {
    /// Begins a turn. Its row is there when the lane goes on: whole, or as a gap that is filled beside the lane.
    pub(super) fn turn_begin(
        self: &Arc<Self>,
        what: table::TurnBegin,
        place: Place,
        reply: Reply,
        bytes: usize,
    ) {
        let name = turns::name_of(&place.root, place.surroundings.session.clone(), what.key.clone(), None);
        let id = reply.id().cloned();
        let Some(token) = self.turns.begin(name, reply) else { return };
        let server = Arc::clone(self);
        let (beside, call) = (place.clone(), id.clone());
        let taken = self.enqueue(Lane::Of(place.root.clone()), place, id, bytes, move |outcome| {
            let result = outcome.and_then(|(around, root)| {
                server.turns.wait_for_captures(&root, &around.interrupt)?;
                let cancelled = Arc::clone(&around.interrupt);
                call::guarded(|| {
                    let cx = around.context();
                    let told = |session: &str, begun: &Begun| {
                        held(&server.opened).insert((root.clone(), session.to_owned()));
                        server.turns.told(token, session, begun);
                    };
                    let (exit, in_flight) = turn::begin_beside(&cx, what, &told)?;
                    if let Some(row) = in_flight {
                        if server.capture_beside(token, row.clone(), beside, (call, cancelled)) {
                            return Ok(None);
                        }
                        turn::capture_beside(&cx, &row, &|| {})?;
                    }
                    Ok(Some(call::document(&cx, exit)))
                })
            });
            Box::new(move || match result {
                // It goes on, and tells its end itself.
                Ok(None) => {}
                Ok(Some(document)) => server.turns.ended(token, Ok(document)),
                Err(fault) => server.turns.ended(token, Err(fault)),
            })
        });
        if !taken {
            self.turns.ended(token, Err(crowded()));
        }
    }

    /// Fills a row in flight in a lane of its own, and returns when others can see that it is at work. `false`: there is no room.
    fn capture_beside(
        self: &Arc<Self>,
        token: u64,
        row: String,
        place: Place,
        (id, cancelled): (Option<serde_json::Value>, Arc<AtomicBool>),
    ) -> bool {
        let (at_work, seen) = mpsc::channel();
        let server = Arc::clone(self);
        self.turns.goes_on(token, true);
        let taken = self.enqueue(Lane::Beside(place.root.clone()), place, id, 0, move |outcome| {
            let result = outcome.and_then(|(around, _)| {
                // The call was told its row's id before this began.
                if cancelled.load(Ordering::Relaxed) {
                    around.interrupt.store(true, Ordering::Relaxed);
                }
                call::guarded(|| {
                    let cx = around.context();
                    let tell = || {
                        let _ = at_work.send(());
                    };
                    let exit = turn::capture_beside(&cx, &row, &tell)?;
                    Ok(call::document(&cx, exit))
                })
            });
            Box::new(move || server.turns.ended(token, result))
        });
        if !taken {
            self.turns.goes_on(token, false);
            return false;
        }
        // It says so, or it has ended and its end of the channel is gone.
        let _ = seen.recv();
        true
    }

    /// One end of a tool window, in the order of the lane. One that has to wait for a capture leaves the lane for that.
    pub(super) fn tool(self: &Arc<Self>, tool: table::Tool, place: Place, reply: Reply, bytes: usize) {
        let waits = matches!(&tool, table::Tool::Before(a) if a.paths.is_empty());
        let lane = Lane::Of(place.root.clone());
        let work = move |around, tool| call::run(around, Command::Tool(tool));
        if !waits {
            return self.run(lane, place, reply, bytes, move |around, _| work(around, tool));
        }
        let id = reply.id().cloned();
        let later = place.clone();
        // Taken by the lane, or by whoever finds that there is no room.
        let slot = Arc::new(std::sync::Mutex::new(Some(reply)));
        let (own, server) = (Arc::clone(&slot), Arc::clone(self));
        let taken = self.enqueue(lane, place, id, bytes, move |outcome| {
            let reply = held(&own).take();
            match outcome {
                Ok(_) if server.turns.captures_in(&later.root) => {}
                Ok((around, _)) => return settle(reply, work(around, tool)),
                Err(fault) => return settle(reply, Err(fault)),
            }
            Box::new(move || {
                if let Some(reply) = reply {
                    let gate = Lane::Gate(later.root.clone());
                    server.run(gate, later, reply, 0, move |around, _| work(around, tool));
                }
            })
        });
        if !taken && let Some(reply) = held(&slot).take() {
            reply.fault(crowded());
        }
    }
}

fn settle(
    reply: Option<Reply>,
    result: Result<serde_json::Value, super::message::Fault>,
) -> super::calls::After {
    Box::new(move || {
        if let Some(reply) = reply {
            reply.settle(result);
        }
    })
}
