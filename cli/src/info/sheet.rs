//! Names and values of a device and its ports, as text or as JSON.

use crate::table::field;
use serde_json::{Map, Value};
use std::fmt::Display;
use std::io::{self, Write};

/// Takes what there is to say, in order: of the device, then of each port.
pub(super) trait Sheet {
    /// A value by its name. Values of ports are indented further than those of the device.
    fn field(&mut self, indent: usize, name: &str, value: impl Display) -> io::Result<()>;

    /// One of several values of the name before.
    fn item(&mut self, value: &str) -> io::Result<()>;

    /// What follows is of this port.
    fn port(&mut self, number: u8) -> io::Result<()>;
}

/// Lines with the values in a column.
pub(super) struct Text<'a, W>(pub(super) &'a mut W);

impl<W: Write> Sheet for Text<'_, W> {
    fn field(&mut self, indent: usize, name: &str, value: impl Display) -> io::Result<()> {
        field(self.0, indent, name, value)
    }

    fn item(&mut self, value: &str) -> io::Result<()> {
        writeln!(self.0, "{:34}{value}", "")
    }

    fn port(&mut self, number: u8) -> io::Result<()> {
        writeln!(self.0, "    port {number}")
    }
}

/// An object, which has its ports as an array.
#[derive(Default)]
pub(super) struct Json {
    device: Map<String, Value>,
    ports: Vec<Map<String, Value>>,
    last: String,
}

impl Json {
    /// The port that was begun last, or the device.
    fn now(&mut self) -> &mut Map<String, Value> {
        self.ports.last_mut().unwrap_or(&mut self.device)
    }

    pub(super) fn into_value(mut self) -> Value {
        let ports: Vec<Value> = self.ports.into_iter().map(Value::from).collect();
        self.device.insert("ports".to_owned(), ports.into());
        self.device.into()
    }
}

impl Sheet for Json {
    fn field(&mut self, _: usize, name: &str, value: impl Display) -> io::Result<()> {
        name.clone_into(&mut self.last);
        let text = value.to_string();
        let value = text.parse::<u64>().map_or(Value::from(text), Value::from);
        self.now().insert(name.to_owned(), value);
        Ok(())
    }

    fn item(&mut self, value: &str) -> io::Result<()> {
        let name = format!("{}_names", self.last);
        let items = self.now().entry(name).or_insert_with(|| Value::Array(Vec::new()));
        items.as_array_mut().into_iter().for_each(|items| items.push(value.into()));
        Ok(())
    }

    fn port(&mut self, number: u8) -> io::Result<()> {
        self.ports.push(Map::from_iter([("port".to_owned(), Value::from(number))]));
        Ok(())
    }
}
