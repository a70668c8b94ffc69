    sub rsp,0x18
    mov rcx,rdx
    mov rdx,rsi
    mov rsi,rdi
    lea rdi,[rsp+0x8]
    call _ZN8mlx5_wqe4send4list59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$14post_send_iter
    mov rax,QWORD PTR [rsp+0x8]
    mov rdx,QWORD PTR [rsp+0x10]
    add rsp,0x18
    ret
