//! What does not compile, and what the compiler says of it.

#[test]
fn what_must_not_compile_does_not() {
    trybuild::TestCases::new().compile_fail("compile_fail/*.rs");
}
