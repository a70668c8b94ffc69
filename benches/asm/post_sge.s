    push r14
    push rbx
    push rax
    mov r10d,edx
    mov rax,rsi
    mov esi,DWORD PTR [rdi+0x58]
    mov edx,DWORD PTR [rdi+0x5c]
    mov r9,QWORD PTR [rdi+0x10]
    mov r9d,DWORD PTR [r9]
    test r9b,0x1
    jne 0
    lea r9d,[rsi-0x1]
    mov DWORD PTR [rdi+0x60],r9d
0:
    mov r11,QWORD PTR [rcx]
    mov r14,QWORD PTR [rcx+0x8]
    lea ecx,[r14-0x1]
    cmp ecx,DWORD PTR [rdi+0x78]
    jae 3
    cmp DWORD PTR [rdi+0x60],esi
    js 3
    mov ecx,DWORD PTR [rdi+0x64]
    and ecx,esi
    shl rcx,0x6
    add rcx,QWORD PTR [rdi]
    bswap rax
    bswap r10d
    mov QWORD PTR [rcx+0x10],rax
    mov QWORD PTR [rcx+0x18],r10
    rol r14,0x20
    bswap r14
    bswap r11
    mov QWORD PTR [rcx+0x20],r14
    mov QWORD PTR [rcx+0x28],r11
    movzx eax,si
    shl rax,0x28
    movabs r9,0x800000003
    or r9,rax
    lea rax,[r9+0x7fffffe]
    add r9,QWORD PTR [rdi+0x50]
    bswap r9
    mov QWORD PTR [rcx],r9
    mov QWORD PTR [rcx+0x8],0x8000000
    mov r9,QWORD PTR [rdi+0x8]
    mov r10d,DWORD PTR [rdi+0x64]
    and r10d,edx
    shl r10,0x4
    mov QWORD PTR [r9+r10*1],r8
    mov QWORD PTR [r9+r10*1+0x8],rax
    inc esi
    inc edx
    cmp DWORD PTR [rdi+0x6c],0x0
    je 1
    mov rax,QWORD PTR [rdi+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 2
1:
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    add rsp,0x8
    pop rbx
    pop r14
    ret
2:
    mov DWORD PTR [rdi+0x58],esi
    mov DWORD PTR [rdi+0x5c],edx
    mov rax,QWORD PTR [rdi+0x38]
    mov WORD PTR [rax],dx
    mov rax,QWORD PTR [rdi+0x18]
    movzx edx,si
    bswap edx
    mov DWORD PTR [rax+0x4],edx
    sfence
    mov rax,QWORD PTR [rdi+0x20]
    movaps xmm0,XMMWORD PTR [rcx]
    movaps xmm1,XMMWORD PTR [rcx+0x10]
    movaps xmm2,XMMWORD PTR [rcx+0x20]
    movaps xmm3,XMMWORD PTR [rcx+0x30]
    movaps XMMWORD PTR [rax],xmm0
    movaps XMMWORD PTR [rax+0x10],xmm1
    movaps XMMWORD PTR [rax+0x20],xmm2
    movaps XMMWORD PTR [rax+0x30],xmm3
    sfence
    mov rax,QWORD PTR [rdi+0x28]
    xor QWORD PTR [rdi+0x20],rax
    xor eax,eax
    add rsp,0x8
    pop rbx
    pop r14
    ret
3:
    mov rbx,rdi
    mov rcx,r8
    mov r8d,0x8
    xor r9d,r9d
    push r14
    push r11
    push r10
    push rax
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    mov rdi,rbx
    mov esi,eax
    jmp 1
    mov r14,rax
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,r14
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
