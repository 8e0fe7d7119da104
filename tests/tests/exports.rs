//! Every format, on profiles made by hand: what is written is read back by someone else's
//! rules (a schema, pprof's own tool, an XML parser) or sums to what went in.
//!
//! Goldens are in `goldens/`; `BLESS=1` writes them anew.

mod exports {
    pub(crate) mod made;
    pub(crate) mod made_off_cpu;

    mod flamegraph;
    mod folded;
    mod golden;
    mod json;
    mod pprof;
    mod sink;
    mod speedscope;
    mod states;
    mod table_limits;
}
