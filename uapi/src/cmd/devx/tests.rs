//! Tests of the encoding of each call.

use std::os::fd::AsFd;

use super::*;
use crate::fake::Script;

#[test]
fn a_query_in_the_background_names_its_answer_file() {
    use attr::devx_obj_query_async as id;
    let file = Script::new().then(|call| {
        assert_eq!(call.method, method::DEVX_OBJ_ASYNC_QUERY);
        assert_eq!((call.object(id::HANDLE), call.object(id::FD)), (30, 1));
        assert_eq!((call.u64(id::OUT_LEN), call.u64(id::WR_ID)), (272, 9));
        assert_eq!(call.input(id::CMD_IN), [3; 16]);
        Ok(())
    });
    let answers = std::io::stdout();
    let asked = obj_query_async(&file, 30, &[3; 16], 272, 9, answers.as_fd());
    assert_eq!(asked, Ok(()));
    file.done();
}

#[test]
fn a_umem_names_its_dma_buf_and_which_page_sizes_must_be_known() {
    use attr::devx_umem_reg as id;
    let registered = |page_sizes, flags: Option<u16>, dmabuf| {
        let file = Script::new().then(move |call| {
            let sizes = call.ids().contains(&id::PGSZ_BITMAP.0);
            assert_eq!(sizes.then(|| call.attr(id::PGSZ_BITMAP).flags), flags);
            assert_eq!(call.ids().contains(&id::DMABUF_FD.0), dmabuf);
            call.answer(id::OUT_ID, &5_u32.to_ne_bytes());
            call.made(id::HANDLE, 4);
            Ok(())
        });
        let fd = std::io::stdout();
        let access = AccessFlags::LOCAL_WRITE;
        let dmabuf = dmabuf.then(|| fd.as_fd());
        let what = UmemReg { addr: 0, len: 4096, access, page_sizes, dmabuf };
        // SAFETY: the script passes the memory to no device.
        let umem = unsafe { umem_reg(&file, &what) };
        assert_eq!(umem, Ok(Umem { handle: 4, id: 5 }));
        file.done();
    };
    registered(PageSizes::Any, None, false);
    registered(PageSizes::Preferred(1 << 12), Some(0), false);
    registered(PageSizes::Only(1 << 12), Some(1), true);
}

#[test]
fn a_subscription_has_a_cookie_or_an_eventfd() {
    use attr::devx_subscribe_event as id;
    let file = Script::new()
        .then(|call| {
            assert_eq!(call.u64(id::COOKIE), 77);
            assert_eq!(call.object(id::OBJ_HANDLE), 30);
            assert_eq!(call.input(id::TYPE_NUM_LIST), [4, 0, 28, 0]);
            assert!(!call.ids().contains(&id::FD_NUM.0));
            Ok(())
        })
        .then(|call| {
            assert_eq!(call.u32(id::FD_NUM), 1);
            assert!(!call.ids().contains(&id::COOKIE.0));
            assert!(!call.ids().contains(&id::OBJ_HANDLE.0));
            Ok(())
        });
    let events = std::io::stdout();
    let events = events.as_fd();
    let cookie = Notice::Cookie(77);
    assert_eq!(subscribe(&file, events, Some(30), &[4, 28], cookie), Ok(()));
    let signal = Notice::EventFd(events);
    assert_eq!(subscribe(&file, events, None, &[9], signal), Ok(()));
    file.done();
}

#[test]
fn virtio_pages_and_rates_are_allocated_and_freed() {
    use attr::{pp_alloc, var_alloc};
    let file = Script::new()
        .then(|call| {
            call.answer(var_alloc::MMAP_OFFSET, &0x7000_u64.to_ne_bytes());
            call.answer(var_alloc::MMAP_LENGTH, &4096_u32.to_ne_bytes());
            call.answer(var_alloc::PAGE_ID, &3_u32.to_ne_bytes());
            call.made(var_alloc::HANDLE, 8);
            Ok(())
        })
        .then(|call| {
            assert_eq!(call.method, method::VAR_DESTROY);
            assert_eq!(call.object(attr::var_destroy::HANDLE), 8);
            Ok(())
        })
        .then(|call| {
            assert_eq!(call.input(pp_alloc::CTX), [1; 48]);
            assert_eq!(call.u64(pp_alloc::FLAGS), 1);
            call.answer(pp_alloc::INDEX, &6_u16.to_ne_bytes());
            call.made(pp_alloc::HANDLE, 9);
            Ok(())
        })
        .then(|call| {
            assert_eq!(call.method, method::PP_DESTROY);
            assert_eq!(call.object(attr::pp_destroy::HANDLE), 9);
            Ok(())
        });
    let var = Var { handle: 8, mmap_offset: 0x7000, mmap_len: 4096, page_id: 3 };
    assert_eq!(alloc_var(&file), Ok(var));
    assert_eq!(free_var(&file, 8), Ok(()));
    let rate = PacketPacing { handle: 9, index: 6 };
    assert_eq!(alloc_pp(&file, &[1; 48], 1), Ok(rate));
    assert_eq!(free_pp(&file, 9), Ok(()));
    file.done();
}
