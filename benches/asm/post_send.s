    push r14
    push rbx
    sub rsp,0x28
    mov rax,rcx
    mov rbx,rdi
    mov r8d,DWORD PTR [rsi+0xd8]
    mov ecx,DWORD PTR [rsi+0xdc]
    mov rdi,QWORD PTR [rsi+0x40]
    mov edi,DWORD PTR [rdi]
    mov r9d,DWORD PTR [rdx+0x8]
    lea r10d,[r9-0x1]
    cmp r10d,DWORD PTR [rsi+0xc0]
    jae 0
    test dil,0x1
    je 0
    cmp DWORD PTR [rsi+0xe0],r8d
    js 0
    mov r10,QWORD PTR [rdx]
    mov edi,DWORD PTR [rsi+0xd0]
    and edi,r8d
    shl rdi,0x6
    add rdi,QWORD PTR [rsi+0x38]
    mov edx,DWORD PTR [rdx+0xc]
    bswap r9d
    bswap edx
    bswap r10
    mov DWORD PTR [rdi+0x10],r9d
    mov DWORD PTR [rdi+0x14],edx
    mov QWORD PTR [rdi+0x18],r10
    movzx edx,r8w
    shl rdx,0x28
    mov r9d,DWORD PTR [rsi+0xe4]
    mov r10,r9
    or r9,rdx
    or rdx,QWORD PTR [rsi+0xa0]
    or r10,0x8000000
    movabs r11,0xa00000000
    or rdx,r11
    or rdx,0x2
    bswap rdx
    mov QWORD PTR [rdi],rdx
    mov QWORD PTR [rdi+0x8],r10
    or r9,0x8000001
    or r9,r11
    mov rdx,QWORD PTR [rsi+0x80]
    mov r10d,DWORD PTR [rsi+0xd0]
    and r10d,ecx
    shl r10,0x4
    mov QWORD PTR [rdx+r10*1],rax
    mov QWORD PTR [rdx+r10*1+0x8],r9
    lea eax,[r8+0x1]
    inc ecx
    cmp DWORD PTR [rsi+0xe8],0x0
    je 1
    mov rdx,QWORD PTR [rsi+0x40]
    mov edx,DWORD PTR [rdx]
    test dl,0x1
    je 1
    mov DWORD PTR [rsi+0xd8],eax
    mov DWORD PTR [rsi+0xdc],ecx
    mov rdx,QWORD PTR [rsi+0x78]
    mov WORD PTR [rdx],cx
    mov rcx,QWORD PTR [rsi+0x50]
    movzx eax,ax
    bswap eax
    mov DWORD PTR [rcx],eax
    sfence
    mov rax,QWORD PTR [rsi+0x58]
    movaps xmm0,XMMWORD PTR [rdi]
    movaps xmm1,XMMWORD PTR [rdi+0x10]
    movaps xmm2,XMMWORD PTR [rdi+0x20]
    movaps xmm3,XMMWORD PTR [rdi+0x30]
    movaps XMMWORD PTR [rax],xmm0
    movaps XMMWORD PTR [rax+0x10],xmm1
    movaps XMMWORD PTR [rax+0x20],xmm2
    movaps XMMWORD PTR [rax+0x30],xmm3
    sfence
    mov rax,QWORD PTR [rsi+0x60]
    xor QWORD PTR [rsi+0x58],rax
    mov BYTE PTR [rbx],0x1b
    jmp 2
0:
    movups xmm0,XMMWORD PTR [rdx]
    movaps XMMWORD PTR [rsp+0x10],xmm0
    lea rdx,[rsp+0x10]
    mov QWORD PTR [rsp],rdx
    mov r14,rsi
    mov rdi,rsi
    mov esi,r8d
    mov edx,ecx
    mov rcx,rax
    mov r8d,0x8
    xor r9d,r9d
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    mov ecx,edx
    mov rsi,r14
1:
    mov rdi,rbx
    mov edx,eax
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
2:
    mov rax,rbx
    add rsp,0x28
    pop rbx
    pop r14
    ret
    mov rbx,rax
    mov rdi,r14
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,rbx
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
