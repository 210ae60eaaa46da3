//! Applies exception policies to packets that can't be inspected.

use super::{FlowAction, FlowHandle, Inspector, Settings, Verdict};
use crate::stream::{self, Exception, Policy};

impl Inspector<'_> {
    /// Applies the policy of an exception to a packet that can't be inspected.
    pub fn apply_policy(&mut self, handle: FlowHandle, exception: Exception, settings: &Settings) -> Verdict {
        match settings.policy(exception) {
            Policy::DropPacket => Verdict::Drop(exception.into()),
            Policy::DropFlow => {
                if let Some((flow, _)) = self.flows.get(handle) {
                    flow.action = FlowAction::Dropped;
                }
                Verdict::Drop(exception.into())
            }
            // Data can't be reassembled if the preceding bytes were not retained.
            Policy::Pass if !matches!(exception, Exception::NoMemory | Exception::SourceFull) => {
                Verdict::Skip(exception.into())
            }
            Policy::Pass | Policy::Bypass => Verdict::Leave(Some(exception.into())),
        }
    }

    /// Applies exception policies to an incompletely inspected packet, if no rule has determined the packet's verdict.
    /// The packet is already part of a stream, so only the whole flow can be dropped.
    #[cold]
    pub(super) fn apply_content_policies(
        &mut self,
        handle: FlowHandle,
        verdict: Verdict,
        settings: &Settings,
    ) -> Verdict {
        let met = std::mem::take(&mut self.exceptions);
        let mut said = verdict;
        for exception in met.iter() {
            self.streams.count(exception);
            let Some((flow, _)) = self.flows.get(handle) else {
                return said;
            };
            if flow.action != FlowAction::Open || said != Verdict::Pass {
                continue;
            }
            said = match settings.policy(exception) {
                Policy::DropFlow | Policy::DropPacket => {
                    flow.action = FlowAction::Dropped;
                    Verdict::Drop(exception.into())
                }
                Policy::Pass => Verdict::Pass,
                Policy::Bypass => Verdict::Leave(Some(exception.into())),
            };
        }
        said
    }
}

/// Exceptions that the content of a packet raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExceptionSet(u32);

const _: () = assert!(stream::EXCEPTIONS <= u32::BITS as usize);

impl ExceptionSet {
    #[inline(always)]
    pub fn add_if(&mut self, is_set: bool, exception: Exception) {
        self.0 |= u32::from(is_set) << exception as u32;
    }

    #[cold]
    pub fn add_all(&mut self, exceptions: impl Iterator<Item = Exception>) {
        exceptions.for_each(|exception| self.add_if(true, exception));
    }

    fn iter(self) -> impl Iterator<Item = Exception> {
        Exception::ALL
            .iter()
            .copied()
            .filter(move |&exception| self.0 >> exception as u32 & 1 != 0)
    }
}
