//! A signature under construction, while its options are parsed.

use super::header::ParsedHeader;
use super::lists::Lists;
use super::{Classes, Dialect, RuleError, positions, range};
use crate::signature::{
    Buffer, Condition, Content, FlowState, Header, Id, Rate, Service, Signature, Track, Transform, Transformed, Value,
};

/// A parsed condition with unresolved positions.
pub(super) struct Step<'a> {
    /// The option from which the condition was parsed.
    pub option: &'a str,
    pub condition: Condition,
    /// Whether the condition is the first after an option that selected its buffer, so that no match in the buffer
    /// precedes it.
    pub fresh: bool,
    /// Whether the condition names no buffer. If it is also relative, it inspects the buffer of the preceding match.
    pub floating: bool,
}

/// A signature under construction, while its options are parsed.
pub(super) struct SignatureDraft<'a> {
    pub dialect: Dialect,
    /// The option being parsed.
    pub option: &'a str,
    pub id: Id,
    pub message: Box<str>,
    pub class: Option<Box<str>>,
    pub priority: Option<u8>,
    pub references: Vec<(Box<str>, Box<str>)>,
    pub services: Vec<Service>,
    pub flow: FlowState,
    pub rate: Option<Rate>,
    pub silent: bool,
    /// An option that inspects only data from the server.
    pub needs_to_client: Option<&'a str>,
    action: crate::signature::Action,
    header: Header,
    steps: Vec<Step<'a>>,
    /// Buffer for conditions that name no buffer.
    sticky: Buffer,
    fresh: bool,
    /// Lists (datasets) to which rules refer.
    pub lists: Lists,
    /// Address of the packet that the following conditions inspect.
    pub address: Option<Track>,
    /// Buffers that are transformed before conditions inspect them.
    transformed: Vec<(Buffer, Vec<Transform>)>,
    /// Whether the following conditions inspect the last transformed buffer.
    is_transformed: bool,
    /// Whether a buffer was selected that no condition inspects yet.
    is_named: bool,
    /// Index of the content to which modifiers apply.
    content: Option<usize>,
    names: Vec<Box<str>>,
}

impl<'a> SignatureDraft<'a> {
    pub fn new(dialect: Dialect, id: Id, headed: ParsedHeader, lists: Lists) -> SignatureDraft<'a> {
        SignatureDraft {
            dialect,
            option: "",
            id,
            message: "".into(),
            class: None,
            priority: None,
            references: Vec::new(),
            services: headed.header.services.to_vec(),
            flow: headed.flow,
            rate: None,
            silent: false,
            needs_to_client: None,
            action: headed.action,
            header: headed.header,
            steps: Vec::new(),
            sticky: Buffer::Payload,
            fresh: true,
            lists,
            address: None,
            transformed: Vec::new(),
            is_transformed: false,
            is_named: false,
            content: None,
            names: Vec::new(),
        }
    }

    /// Selects the buffer of the following conditions.
    pub fn select_buffer(&mut self, buffer: Buffer) {
        (self.sticky, self.content, self.address) = (buffer, None, None);
        (self.is_transformed, self.is_named) = (false, true);
        // Suricata continues after the last match in a buffer, even if other buffers were selected in between.
        self.fresh |= self.dialect != Dialect::Suricata;
    }

    /// Buffer for conditions that name no buffer.
    pub fn buffer(&self) -> Buffer {
        match self.transformed.len() {
            count @ 1.. if self.is_transformed => Buffer::TRANSFORMED[count - 1],
            _ => self.sticky,
        }
    }

    /// Adds a transform to the last selected buffer.
    pub fn transform(&mut self, transform: Transform) -> Result<(), RuleError> {
        if !self.is_named || self.sticky == Buffer::Payload || self.sticky == Buffer::Base64 {
            return Err(RuleError::NoBufferBefore);
        }
        if !self.is_transformed {
            if self.transformed.len() == Buffer::TRANSFORMED.len() {
                return Err(RuleError::TooManyTransformed);
            }
            self.transformed.push((self.sticky, Vec::new()));
            self.is_transformed = true;
        }
        if let Some((_, steps)) = self.transformed.last_mut() {
            steps.push(transform);
        }
        Ok(())
    }

    /// Selects an address that the following conditions inspect.
    pub fn select_address(&mut self, track: Track) {
        self.select_buffer(Buffer::Payload);
        (self.address, self.is_named) = (Some(track), false);
    }

    /// Adds a condition on a header or the flow.
    pub fn push(&mut self, condition: Condition) {
        self.steps.push(Step {
            option: self.option,
            condition,
            fresh: false,
            floating: false,
        });
    }

    /// Adds a condition on a buffer. A floating condition names no buffer.
    pub fn push_search(&mut self, condition: Condition, floating: bool) -> Result<(), RuleError> {
        let is_content = matches!(condition, Condition::Content(_));
        if self.address.is_some() {
            return Err(RuleError::NotInspected);
        }
        self.is_named = false;
        if is_content {
            self.content = Some(self.steps.len());
        }
        let fresh = std::mem::take(&mut self.fresh);
        // Snort 3 options and Suricata's sticky buffers always name their buffer.
        let floating = floating
            && match self.dialect {
                Dialect::Snort2 => true,
                Dialect::Suricata => self.buffer() == Buffer::Payload,
                Dialect::Snort3 => false,
            };
        self.steps.push(Step {
            option: self.option,
            condition,
            fresh,
            floating,
        });
        Ok(())
    }

    /// The content to which a modifier applies.
    pub fn content(&mut self) -> Result<&mut Content, RuleError> {
        match self.content.map(|place| &mut self.steps[place].condition) {
            Some(Condition::Content(content)) => Ok(content),
            _ => Err(RuleError::NoContentBefore),
        }
    }

    /// Parses a constant or the name of an extracted value.
    pub fn value(&self, text: &str) -> Result<Value, RuleError> {
        if let Some(place) = self.names.iter().rposition(|name| **name == *text) {
            return Ok(Value::Extracted(place as u8));
        }
        match range::signed(text) {
            Err(RuleError::NotANumber(text)) => Err(RuleError::UnknownValue(text)),
            number => number.map(Value::Constant),
        }
    }

    /// Allocates a variable for an extracted value. Later uses of the name refer to the new variable instead of an
    /// earlier variable of this name.
    pub fn name(&mut self, name: &str) -> Result<u8, RuleError> {
        let place = u8::try_from(self.names.len()).ok().filter(|place| *place < u8::MAX);
        let place = place.ok_or(RuleError::TooManyExtracted)?;
        self.names.push(name.into());
        Ok(place)
    }

    /// Completes the signature, or returns the option that is incompatible with other options.
    pub fn signature(mut self, line: u32, classes: &Classes) -> Result<Signature, (&'a str, RuleError)> {
        if let Some(option) = self.needs_to_client
            && self.flow.direction != Some(crate::signature::Toward::Client)
        {
            return Err((option, RuleError::NeedsToClient));
        }
        let conditions = positions::resolve_positions(self.dialect, self.steps, &self.transformed)?;
        let transformed = self.transformed.into_iter().map(|(buffer, steps)| Transformed {
            buffer,
            steps: steps.into(),
        });
        let ports = [&self.header.source.ports, &self.header.destination.ports];
        if let Some(Service::Other(name)) = self.services.first()
            && !self.services.iter().any(Service::is_identified)
            && ports.iter().all(|ports| ports.0.is_empty())
        {
            return Err(("service", RuleError::NotIdentified((*name).into())));
        }
        self.services.sort_unstable();
        self.services.dedup();
        Ok(Signature {
            id: self.id,
            line,
            message: self.message,
            priority: self.priority.unwrap_or_else(|| classes.priority(self.class.as_deref())),
            class: self.class,
            references: self.references.into(),
            action: self.action,
            header: Header {
                services: self.services.into(),
                ..self.header
            },
            flow: self.flow,
            conditions,
            transformed: transformed.collect(),
            rate: self.rate,
            noalert: self.silent,
        })
    }
}
