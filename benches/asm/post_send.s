    push r14
    push rbx
    sub rsp,0x28
    mov rax,rcx
    mov rbx,rdi
    mov r8d,DWORD PTR [rsi+0xd8]
    mov ecx,DWORD PTR [rsi+0xdc]
    mov rdi,QWORD PTR [rsi+0x40]
    mov edi,DWORD PTR [rdi]
    mov r10d,DWORD PTR [rdx+0x8]
    lea r9d,[r10-0x1]
    cmp r9d,DWORD PTR [rsi+0xc0]
    jae 0
    test dil,0x1
    je 0
    cmp DWORD PTR [rsi+0xe0],r8d
    js 0
    mov r9d,DWORD PTR [rsi+0xd0]
    mov edi,r9d
    and edi,r8d
    shl rdi,0x6
    add rdi,QWORD PTR [rsi+0x38]
    mov r11,QWORD PTR [rdx]
    mov edx,DWORD PTR [rdx+0xc]
    bswap r10d
    bswap edx
    bswap r11
    mov DWORD PTR [rdi+0x10],r10d
    mov DWORD PTR [rdi+0x14],edx
    mov QWORD PTR [rdi+0x18],r11
    movzx edx,r8w
    shl rdx,0x28
    mov r10d,DWORD PTR [rsi+0xe4]
    mov r11,r10
    or r11,0x8000000
    or r10,rdx
    or rdx,QWORD PTR [rsi+0xa0]
    movabs r14,0xa00000000
    or rdx,r14
    or rdx,0x2
    bswap rdx
    mov QWORD PTR [rdi],rdx
    mov QWORD PTR [rdi+0x8],r11
    or r10,0x8000001
    or r10,r14
    mov rdx,QWORD PTR [rsi+0x80]
    and r9d,ecx
    shl r9,0x4
    mov QWORD PTR [rdx+r9*1],rax
    mov QWORD PTR [rdx+r9*1+0x8],r10
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
    call QWORD PTR [_ZN8mlx5_wqe5build52_$LT$impl$u20$mlx5_wqe..send..SendQueue$LT$T$GT$$GT$9push_slow]
    mov ecx,edx
    mov rsi,r14
1:
    mov rdi,rbx
    mov edx,eax
    call QWORD PTR [_ZN8mlx5_wqe4post52_$LT$impl$u20$mlx5_wqe..send..SendQueue$LT$T$GT$$GT$13complete_slow]
2:
    mov rax,rbx
    add rsp,0x28
    pop rbx
    pop r14
    ret
    mov rbx,rax
    mov rdi,r14
    call QWORD PTR [_ZN8mlx5_wqe4post52_$LT$impl$u20$mlx5_wqe..send..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,rbx
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
