    push r14
    push rbx
    push rax
    mov rcx,rdx
    mov rax,rsi
    mov esi,DWORD PTR [rdi+0x58]
    mov edx,DWORD PTR [rdi+0x5c]
    mov r8,QWORD PTR [rdi+0x10]
    mov r8d,DWORD PTR [r8]
    test r8b,0x1
    jne 0
    lea r8d,[rsi-0x1]
    mov DWORD PTR [rdi+0x60],r8d
0:
    mov r10,QWORD PTR [rax]
    mov r11,QWORD PTR [rax+0x8]
    lea eax,[r11-0x1]
    cmp eax,DWORD PTR [rdi+0x78]
    jae 3
    cmp DWORD PTR [rdi+0x60],esi
    js 3
    mov eax,DWORD PTR [rdi+0x64]
    and eax,esi
    shl rax,0x6
    add rax,QWORD PTR [rdi]
    rol r11,0x20
    bswap r11
    bswap r10
    mov QWORD PTR [rax+0x10],r11
    mov QWORD PTR [rax+0x18],r10
    movzx r8d,si
    shl r8,0x28
    movabs r9,0xa00000002
    or r9,r8
    lea r8,[r9+0x7ffffff]
    add r9,QWORD PTR [rdi+0x50]
    bswap r9
    mov QWORD PTR [rax],r9
    mov QWORD PTR [rax+0x8],0x8000000
    mov r9,QWORD PTR [rdi+0x8]
    mov r10d,DWORD PTR [rdi+0x64]
    and r10d,edx
    shl r10,0x4
    mov QWORD PTR [r9+r10*1],rcx
    mov QWORD PTR [r9+r10*1+0x8],r8
    inc esi
    inc edx
    cmp DWORD PTR [rdi+0x6c],0x0
    je 1
    mov rcx,QWORD PTR [rdi+0x10]
    mov ecx,DWORD PTR [rcx]
    test cl,0x1
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
    mov rcx,QWORD PTR [rdi+0x38]
    mov WORD PTR [rcx],dx
    mov rcx,QWORD PTR [rdi+0x18]
    movzx edx,si
    bswap edx
    mov DWORD PTR [rcx+0x4],edx
    sfence
    mov rcx,QWORD PTR [rdi+0x20]
    movaps xmm0,XMMWORD PTR [rax]
    movaps xmm1,XMMWORD PTR [rax+0x10]
    movaps xmm2,XMMWORD PTR [rax+0x20]
    movaps xmm3,XMMWORD PTR [rax+0x30]
    movaps XMMWORD PTR [rcx],xmm0
    movaps XMMWORD PTR [rcx+0x10],xmm1
    movaps XMMWORD PTR [rcx+0x20],xmm2
    movaps XMMWORD PTR [rcx+0x30],xmm3
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
    mov r8d,0x8
    xor r9d,r9d
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x10
    mov rdi,rbx
    mov esi,eax
    jmp 1
    mov r14,rax
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,r14
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
