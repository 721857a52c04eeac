use proc_macro2::TokenStream;
use quote::quote;

use super::idempotent;
fn tokens(text: &str) -> TokenStream {
    text.parse().unwrap_or_default()
}

/// Without white space, which is the tokens' printer's business.
fn squashed(text: &str) -> String {
    text.split_whitespace().collect()
}

struct Expansion(String);

impl Expansion {
    fn has(&self, part: &str) -> bool {
        self.0.contains(&squashed(part))
    }

    #[track_caller]
    fn must_have(&self, part: &str) {
        assert!(self.has(part), "{part}: {}", self.0);
    }
}

fn expand(args: &str, item: &str) -> Expansion {
    let out = idempotent(tokens(args), tokens(item)).to_string();
    assert!(!out.contains("compile_error"), "{out}");
    Expansion(squashed(&out))
}

/// The messages of `compile_error!`.
fn messages(args: &str, item: &str) -> Vec<String> {
    let text = idempotent(tokens(args), tokens(item)).to_string();
    let mut found: Vec<String> = text
        .split(":: core :: compile_error ! { \"")
        .map(|rest| rest.split("\" }").next().unwrap_or_default().to_owned())
        .collect();
    found.remove(0);
    found
}

const ARGS: &str = r#"key = "order:{id}", ttl = "7d", store = store"#;
const ITEM: &str = "async fn pay(store: &Memory, id: u64) -> Result<u64, E> { Ok(id) }";

#[test]
fn a_refused_item_comes_first_and_unchanged() {
    let item = tokens("#[doc = \"x\"] pub async fn pay(id: u64) -> Result<u64, E> { Ok(id) }");
    let out = idempotent(TokenStream::new(), item.clone()).to_string();
    assert!(out.starts_with(&item.to_string()), "{out}");
    assert_eq!(out.matches("compile_error").count(), 3, "{out}");
}

#[test]
fn every_mistake_is_reported() {
    let args = r#"key = "{idd}{0}", ttl = 7, banana, wait = "5", reject, reject"#;
    let messages = messages(args, "fn pay(id: u64) {}");
    for part in [
        "no unit: write \\\"7s\\\"",
        "unknown argument `banana`",
        "no unit: write \\\"5s\\\"",
        "`reject` is given twice",
        "needs an `async fn`",
    ] {
        assert!(
            messages.iter().any(|message| message.contains(part)),
            "{part}: {messages:?}"
        );
    }
}

#[test]
fn mac_15_a_body_that_is_being_typed_goes_through() {
    for body in [
        "{ let x = foo . }",
        "{ x . ; }",
        "{ match }",
        "{ if let Some( ) }",
        "{ # }",
        "{ \"unfinished }",
        "{ }",
    ] {
        let Ok(body) = body.parse::<TokenStream>() else {
            continue;
        };
        let item = quote!(async fn pay(store: &Memory, id: u64) -> Result<u64, E> #body);
        let out = idempotent(tokens(ARGS), item).to_string();
        assert!(!out.contains("compile_error"), "{out}");
        assert!(out.contains(&body.to_string()), "{out}");
    }
}

#[test]
fn mac_15_arguments_that_are_being_typed_keep_the_item() {
    for args in [
        "key",
        "key =",
        "key = \"{\"",
        "key = \"{id\", ",
        "key(",
        "key(id.)",
        "store = tx.",
        "=",
        ",",
        "key = \"{id}\", ttl = , store",
        "key = \"{id}\" ttl",
        "ttl = \"7",
        "crate = ::",
    ] {
        let Ok(args) = args.parse::<TokenStream>() else {
            continue;
        };
        let out = idempotent(args.clone(), tokens(ITEM)).to_string();
        assert!(out.starts_with(&tokens(ITEM).to_string()), "{args}: {out}");
        assert!(out.contains("compile_error"), "{args}: {out}");
    }
}

#[test]
fn items_that_are_no_functions_are_named() {
    for (item, part) in [
        ("struct A;", "on a struct"),
        ("pub enum A { B }", "on an enum"),
        ("impl A { }", "on an impl block"),
        ("unsafe impl A for B { }", "on an impl block"),
        ("pub trait A { }", "on a trait"),
        ("mod a { }", "on a module"),
        ("const A: u8 = 1;", "on a constant"),
        ("static A: u8 = 1;", "on a static"),
        ("type A = u8;", "on a type alias"),
        ("a! { }", "on a macro call"),
        ("|x| x", "on a closure"),
        ("async move |x| x", "on a closure"),
        ("use a::b;", "does not go here"),
        ("union A { a: u8 }", "does not go here"),
        ("async fn f(&self) -> Result<(), E>;", "without a body"),
        ("const fn f() -> Result<(), E> { }", "runs in the compiler"),
        (
            "async fn main() -> Result<(), E> { }",
            "`main` is called once",
        ),
        ("async extern \"C\" fn f() -> Result<(), E> { }", "`extern`"),
        (
            "async unsafe extern \"C\" fn f(x: u8, ...) -> Result<(), E> { }",
            "variadic",
        ),
    ] {
        let messages = messages(ARGS, item);
        assert!(
            messages.iter().any(|message| message.contains(part)),
            "{item}: {messages:?}"
        );
    }
}

#[test]
fn the_arguments_become_the_operation() {
    let args = r#"key("k", id), ttl = 1h30m, store = store, scope = "a.b", wait = "5s", lease = "10s",
        codec = msgpack, schema = 3, key_text = hidden, on_cancel = release, on_crash = "hold",
        on_lost_lease = "continue", max_outcome = "64KiB", oversize = tombstone, tombstone = 30d"#;
    let out = expand(args, ITEM);
    for part in [
        "Scope::fixed(\"a.b\")",
        ".retention_millis(5400000u64)",
        ".wait_millis(5000u64)",
        ".lease_millis(10000u64)",
        "CodecId::MessagePack)",
        ".schema(3u32)",
        ".key_text_is(::idem::__private::KeyText::Hidden)",
        ".on_cancel_release()",
        ".on_crash_hold()",
        ".on_lost_lease_continue()",
        ".max_outcome(65536u64)",
        ".oversize_tombstone()",
        ".tombstone_millis(2592000000u64)",
    ] {
        out.must_have(part);
    }
    let plain = expand(ARGS, ITEM);
    plain.must_have("Scope::derived()).retention_millis(604800000u64).unique_scope();");
}

#[test]
fn the_key_is_built_in_order() {
    let out = expand(r#"key = "a:{id}/{id}-", ttl = never, store = store"#, ITEM);
    out.must_have(".retention_forever()");
    out.must_have(
        r#"let mut __idem_key = ::idem::__private::KeyBuilder::new("/");
        __idem_key.literal("a:");
        ::idem::__private::key_part(&mut __idem_key, &id);
        __idem_key.literal("/");
        ::idem::__private::key_part(&mut __idem_key, &id);
        __idem_key.literal("-");"#,
    );
}

#[test]
fn the_signature_is_not_touched() {
    let item = "#[inline] pub(in a::b) async unsafe fn f<'a, T: X, const N: usize>(self: &'a Self, mut x: [T; N], (a, _): (u8, u8)) -> Result<T, E> where T: 'a { x }";
    let out = idempotent(
        tokens(r#"key(a), ttl = "1d", store = self.s"#),
        tokens(item),
    )
    .to_string();
    let head = tokens(item.strip_suffix("{ x }").unwrap_or_default()).to_string();
    assert!(out.starts_with(&head), "{out}");
}

#[test]
fn only_the_payload_is_fingerprinted() {
    let item = "async fn f(&self, tx: &mut Tx, req: Req, (a, _): (u8, u8)) -> Result<u8, E> { }";
    let with = |more: &str| {
        expand(
            &format!(r#"key(req.id), ttl = "1d", store = tx{more}"#),
            item,
        )
    };

    let all = with("");
    all.must_have("Probe(&req)");
    all.must_have("Probe(&a)");
    assert!(!all.has("Probe(&tx)") && !all.has("Probe(&self)"));

    let chosen = with(", fingerprint(req.cents)");
    chosen.must_have("&req.cents");
    assert!(!chosen.has("Probe(&a)"));

    with(", fingerprint = none").must_have("FingerprintBuilder::none()");
}

#[test]
fn the_body_owns_its_arguments_and_leaves_the_store() {
    let item =
        "async fn f(&mut self, tx: &mut Tx, store: Memory, req: Req) -> Result<u8, E> { body }";
    let with = |store: &str| {
        expand(
            &format!(r#"key(req.id), ttl = "1d", store = {store}"#),
            item,
        )
    };

    let reborrowed = with("tx");
    reborrowed.must_have("let tx = &mut *tx;");
    reborrowed.must_have(".drive(async move {");
    with("STORE").must_have(".drive(async move {");

    for in_place in [with("self.tx"), with("store")] {
        in_place.must_have(".drive(async {");
        in_place.must_have("let __idem_moved = req;");
    }
    with("store").must_have("let __idem_moved = self;");
    assert!(!with("self.tx").has("let __idem_moved = self;"));
}

#[test]
fn a_retried_body_gets_copies() {
    let item = "async fn f(pool: &Pool, mut req: Req, name: &str, out: &mut Out) -> Result<u8, E> { body }";
    let out = expand(
        r#"key(req.id), ttl = "1d", store = pool, tx = tx, retry = 3"#,
        item,
    );
    for part in [
        ".retries(3u32)",
        "let mut req = ::core::clone::Clone::clone(&*&mut req);",
        "let out = &mut *out;",
        "let tx = __idem_run.transaction();",
        "close_or_again",
    ] {
        out.must_have(part);
    }
    assert!(!out.has("clone(&name)"));
}

#[test]
fn the_backstop_is_asked_inside_the_body() {
    let item = "async fn f(&self, req: Req) -> Result<u8, E> { body }";
    let out = expand(
        r#"key(req.id), ttl = "1d", store = self.pool, tx = tx, backstop = self.find(tx, &req)"#,
        item,
    );
    out.must_have("into_future(self.find(tx, &req)).await");
    assert!(!expand(ARGS, ITEM).has("Backstop"));
}

#[test]
fn the_token_is_asked_for_inside_the_body_in_both_forms() {
    let item = "async fn f(&self, req: Req) -> Result<u8, E> { body }";
    for token in [
        r#"token(&self.tokens, &req.token, subject = self.who(), operation = "x")"#,
        r##"token = r#"&self.tokens, &req.token, operation = "x", subject = self.who()"#"##,
    ] {
        let args = format!(r#"key(req.id), ttl = "1d", store = self.pool, tx = tx, {token}"#);
        let out = expand(&args, item);
        out.must_have("::admit(__idem_slot, &mut *tx, &self.tokens,");
        out.must_have("AsRef::<str>::as_ref(&&req.token)");
        out.must_have("AsRef::<str>::as_ref(&self.who())");
        out.must_have("unless_refused_by(&__idem_permit)");
    }
    assert!(!expand(ARGS, ITEM).has("PermitSlot"));
}

#[test]
fn what_is_kept_is_recorded_and_the_answer_rebuilt() {
    let item = "async fn f(&self, req: Req) -> Result<Order, E> { body }";
    let out = expand(
        r#"key(req.id), ttl = "1d", store = self.pool, tx = tx, retry = 1, keep = Order::id,
        rebuild = self.load(kept)"#,
        item,
    );
    for part in [
        "Keep::<Order, _>::new(|__idem_value| Order::id(__idem_value));",
        "__idem_keep.contract::<E>()",
        "let kept = __idem_kept;",
        "Closed::Answer(__idem_answer) => break __idem_contract.first(__idem_value, __idem_answer)",
    ] {
        out.must_have(part);
    }
}

#[test]
fn a_companion_takes_what_the_key_needs() {
    let item = "#[inline] #[cfg(all())] pub(crate) async fn f<T: X>(&mut self, tx: &mut Tx, mut req: Req, (ref a, _): (u8, u8), name: &mut str, rest: T) -> Result<T, E> where T: Y { body }";
    let out = expand(
        r#"key(req.id, a, name), ttl = "1d", store = tx, companion = f_call, schema = 3"#,
        item,
    );
    for part in [
        "#[cfg(all())] #[allow",
        "pub(crate) fn f_call<T: X>(req: &Req, (a, _): &(u8, u8), name: &str)
            -> ::core::result::Result<::idem::__private::CallRef<T, E>, ::idem::__private::Error>
            where T: Y {",
        "Operation::new(::idem::__private::Scope::beside(\"f\"))",
        ".schema(3u32)",
        "&[::core::any::type_name::<T>(), ::core::any::type_name::<Self>()]",
        "::idem::__private::contract::<T, E>(),",
    ] {
        out.must_have(part);
    }
    let fixed = expand(
        r#"key(self.id), scope = "a", ttl = "1d", store = tx, companion = f_call, record_err = all"#,
        "async fn f(self: Arc<Self>, tx: &mut Tx, with: impl X) -> Answer { body }",
    );
    for part in [
        "fn f_call(&self,) -> ::core::result::Result<::idem::__private::CallRef<
            <Answer as ::idem::__private::Answer>::Ok, <Answer as ::idem::__private::Answer>::Err>,",
        "Scope::fixed(\"a\")",
        "&[],",
        ".recording_all()",
    ] {
        fixed.must_have(part);
    }
    assert!(!expand(ARGS, ITEM).has("CallRef"));
}

#[test]
fn mac_09_the_work_inside_a_boxed_future_is_wrapped() {
    let item = "fn f<'a>(&'a self, id: u64, __arg1: Path) -> Pin<Box<dyn Future<Output = Result<u8, E>> + Send + 'a>> {
        Box::pin(async move {
            if let Some(__ret) = None::<Result<u8, E>> { return __ret; }
            let __self = self;
            let mut id = id;
            let Path(name) = { let __arg1 = __arg1; __arg1 };
            let __ret: Result<u8, E> = { user; statements };
            __ret
        })
    }";
    let out = expand(
        r#"key(self.tenant, id, name), ttl = "1d", store = self.store"#,
        item,
    );
    for part in [
        "&__self.tenant",
        "&name",
        "share(&__self.store)",
        "{ user; statements }",
    ] {
        out.must_have(part);
    }
    assert!(!out.has("let __ret: Result"));
}

#[test]
fn inner_attributes_stay_in_front() {
    let item = "async fn f(id: u64) -> Result<u8, E> { #![allow(x)] #![allow(y)] body }";
    let out = expand(r#"key(id), ttl = "1d", store = STORE"#, item);
    out.must_have("{ #![allow(x)] #![allow(y)] #[allow(dead_code)]");
}
