//! Profiles as a Pyroscope gets them: a request of its push API, or a gzipped profile, in; series and samples out. Numbers of
//! fields are those of `push/v1/push.proto` and `profile.proto` as they are published.

use std::collections::BTreeMap;
use std::io::Read as _;

use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;

use crate::protobuf::{Field, fields};

/// A profile that was sent.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// Labels of the series.
    pub labels: BTreeMap<String, String>,
    /// The profile's own.
    pub id: String,
    /// As it came.
    pub raw: Vec<u8>,
}

/// A profile.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Names and units of the values.
    pub types: Vec<(String, String)>,
    /// What one period is of, and how many of it.
    pub period: (String, String, u64),
    /// All samples.
    pub samples: Vec<Sample>,
    /// Paths and build ids of files.
    pub mappings: Vec<(String, String)>,
    /// Comments.
    pub comments: Vec<String>,
    /// Begin, ns since the Unix epoch.
    pub time_ns: u64,
    /// Length, ns.
    pub duration_ns: u64,
}

/// A sample.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Names of functions, and paths of the files that they are in, outermost first; no path where it is not known.
    pub frames: Vec<(String, Option<String>)>,
    /// One for each type.
    pub values: Vec<u64>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

impl Profile {
    /// Σ of a value over all samples.
    #[must_use]
    pub fn sum(&self, at: usize) -> u64 {
        self.samples.iter().map(|sample| sample.values[at]).sum()
    }

    /// A comment that is `KEY=NUMBER`.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn stated(&self, key: &str) -> Result<u64> {
        let mut comments = self.comments.iter();
        let value = comments.find_map(|text| text.strip_prefix(key)?.strip_prefix('='));
        Ok(value
            .with_context(|| format!("{key}: {self:#?}"))?
            .parse()?)
    }
}

/// Reads the requests of the push API.
///
/// # Errors
///
/// When one is malformed.
pub fn pushed(bodies: &[Vec<u8>]) -> Result<Vec<Pushed>> {
    let mut all = Vec::new();
    for body in bodies {
        for (number, series) in fields(body)? {
            ensure!(number == 1, "field {number} of a request");
            let mut labels = BTreeMap::new();
            let mut samples = Vec::new();
            for (number, field) in fields(series.bytes()?)? {
                match number {
                    1 => {
                        let [name, value] = texts(field.bytes()?, [1, 2])?;
                        labels.insert(name, value);
                    }
                    2 => samples.push(field.bytes()?),
                    number => anyhow::bail!("field {number} of a series"),
                }
            }
            for sample in samples {
                let of: BTreeMap<u64, Field<'_>> = fields(sample)?.into_iter().collect();
                all.push(Pushed {
                    labels: labels.clone(),
                    raw: of.get(&1).context("no profile")?.bytes()?.to_vec(),
                    id: text(of.get(&2).context("no id")?.bytes()?)?,
                });
            }
        }
    }
    Ok(all)
}

/// Reads a gzipped profile.
///
/// # Errors
///
/// When it is malformed, or refers to what is not there.
pub fn read(raw: &[u8]) -> Result<Profile> {
    let mut bytes = Vec::new();
    GzDecoder::new(raw).read_to_end(&mut bytes)?;
    let all = fields(&bytes)?;
    let of = |wanted: u64| {
        let those = all.iter().filter(move |(number, _)| *number == wanted);
        those.map(|(_, field)| *field)
    };
    let strings: Result<Vec<String>> = of(6).map(|field| text(field.bytes()?)).collect();
    let strings = strings?;
    ensure!(strings.first().is_some_and(String::is_empty), "{strings:?}");
    let string = |at: u64| strings.get(at as usize).cloned().context("no such text");
    let number = |wanted: u64| of(wanted).next().map_or(Ok(0), Field::number);
    let value_type = |field: Field<'_>| -> Result<(String, String)> {
        let [name, unit] = numbers(field.bytes()?, [1, 2])?;
        Ok((string(name)?, string(unit)?))
    };
    let (mut mappings, mut functions) = (BTreeMap::new(), BTreeMap::new());
    for field in of(3) {
        let [id, path, build_id] = numbers(field.bytes()?, [1, 5, 6])?;
        mappings.insert(id, (string(path)?, string(build_id)?));
    }
    for field in of(5) {
        let [id, name] = numbers(field.bytes()?, [1, 2])?;
        functions.insert(id, string(name)?);
    }
    let mut locations = BTreeMap::new();
    for field in of(4) {
        let [id, mapping] = numbers(field.bytes()?, [1, 2])?;
        let mut lines = fields(field.bytes()?)?.into_iter();
        let line = lines.find(|(number, _)| *number == 4).context("no line")?;
        let [function] = numbers(line.1.bytes()?, [1])?;
        let name = functions.get(&function).context("no such function")?;
        let path = match mapping {
            0 => None,
            id => Some(mappings.get(&id).context("no such mapping")?.0.clone()),
        };
        locations.insert(id, (name.clone(), path));
    }
    let mut samples = Vec::new();
    for field in of(2) {
        let mut sample = Sample::default();
        for (number, field) in fields(field.bytes()?)? {
            match number {
                1 => {
                    for id in field.numbers()? {
                        let frame = locations.get(&id).context("no such location")?;
                        sample.frames.insert(0, frame.clone());
                    }
                }
                2 => sample.values.extend(field.numbers()?),
                3 => {
                    let [key, value] = numbers(field.bytes()?, [1, 2])?;
                    sample.labels.insert(string(key)?, string(value)?);
                }
                number => anyhow::bail!("field {number} of a sample"),
            }
        }
        samples.push(sample);
    }
    let (name, unit) = of(11).next().map(value_type).context("no period")??;
    let comments: Result<Vec<u64>> = of(13).try_fold(Vec::new(), |mut all, field| {
        all.extend(field.numbers()?);
        Ok(all)
    });
    let comments: Result<Vec<String>> = comments?.into_iter().map(string).collect();
    let types: Result<Vec<_>> = of(1).map(value_type).collect();
    let types = types?;
    ensure!(
        samples
            .iter()
            .all(|sample| sample.values.len() == types.len()),
        "a value for each type"
    );
    Ok(Profile {
        types,
        period: (name, unit, number(12)?),
        samples,
        mappings: mappings.into_values().collect(),
        comments: comments?,
        time_ns: number(9)?,
        duration_ns: number(10)?,
    })
}

/// Numbers of a message; 0 where they are left out.
fn numbers<const N: usize>(message: &[u8], wanted: [u64; N]) -> Result<[u64; N]> {
    let of: BTreeMap<u64, Field<'_>> = fields(message)?.into_iter().collect();
    let mut numbers = [0; N];
    for (number, wanted) in numbers.iter_mut().zip(wanted) {
        *number = of.get(&wanted).map_or(Ok(0), |field| field.number())?;
    }
    Ok(numbers)
}

fn texts<const N: usize>(message: &[u8], wanted: [u64; N]) -> Result<[String; N]> {
    let of: BTreeMap<u64, Field<'_>> = fields(message)?.into_iter().collect();
    let mut texts = std::array::from_fn(|_| String::new());
    for (to, wanted) in texts.iter_mut().zip(wanted) {
        *to = text(of.get(&wanted).context("a text is left out")?.bytes()?)?;
    }
    Ok(texts)
}

fn text(bytes: &[u8]) -> Result<String> {
    Ok(String::from_utf8(bytes.to_vec())?)
}
